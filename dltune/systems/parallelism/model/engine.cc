// The doors of the engine for Python (parallelism_binding.py).
#include <cstdint>
#include <memory>
#include <vector>

#include "apart.h"
#include "branching.h"
#include "search.h"

namespace dltune::parallelism {

// An event with its names apart. `kind`: of what it is (name::Kind), `number`: of the operator, edge or
// weights, `back`: whether it belongs to the backward pass, for weights the phase; `place`: the task, the
// receiving task, or the set; `part`: what it comes from, or the device.
struct Shown {
  std::int32_t kind, number, back, place, part, resource;
  std::int64_t ready, start, end, bytes;
};

// Of a strategy: ns of all operators' tasks, bytes between devices, tasks of all kinds.
struct Totals {
  std::int64_t compute, forward_bytes, backward_bytes, weight_bytes, tasks, load;
};

struct Engine {
  explicit Engine(const Problem& given)
      : problem(given), graph(problem), simulation(graph), chain(&graph) {}
  const Problem problem;
  TaskGraph graph;
  Simulation simulation;
  Chain chain;
  std::vector<Event> events;
  std::vector<Shown> shown;
};

namespace {

Shown show(const Engine& engine, const Event& event) {
  Shown out{};
  out.kind = static_cast<std::int32_t>(name::kind(event.name));
  out.number = name::number(event.name);
  out.resource = event.resource;
  out.ready = event.ready;
  out.end = event.end;
  out.start = event.end - engine.simulation.duration(event);
  const int first = name::first(event.name);
  out.part = name::second(event.name);
  if (name::kind(event.name) == name::kSynchronization) {
    out.back = Simulation::phase(event.name);
    out.place = Simulation::set(event.name);
    if (out.back != name::kUpdate)
      out.bytes = engine.graph.synchronization[out.number].hops[event.index].bytes;
  } else {
    out.back = first & static_cast<int>(name::kBack) ? 1 : 0;
    out.place = first & (static_cast<int>(name::kBack) - 1);
    if (name::kind(event.name) == name::kOperator)
      std::swap(out.place, out.part);
    else
      out.bytes = engine.simulation.flow(event.name).pieces()[event.index].bytes;
  }
  return out;
}

}  // namespace
}  // namespace dltune::parallelism

using dltune::parallelism::Engine;

DLTUNE_MIRRORED(Region, dltune::parallelism::Region)
DLTUNE_MIRRORED(Edge, dltune::parallelism::Edge)
DLTUNE_MIRRORED(Division, dltune::parallelism::Configuration)
DLTUNE_MIRRORED(OperatorAbout, dltune::parallelism::Operator)
DLTUNE_MIRRORED(ProblemAbout, dltune::parallelism::Problem)
DLTUNE_MIRRORED(SearchAbout, dltune::parallelism::Search)
DLTUNE_MIRRORED(Outcome, dltune::parallelism::Outcome)
DLTUNE_MIRRORED(Limits, dltune::parallelism::Limits)
DLTUNE_MIRRORED(Proof, dltune::parallelism::Proof)
DLTUNE_MIRRORED(Shown, dltune::parallelism::Shown)
DLTUNE_MIRRORED(Totals, dltune::parallelism::Totals)

#define DLTUNE_DOOR extern "C" __attribute__((visibility("default")))

// What `problem` points to must outlive the engine.
DLTUNE_DOOR void* dltune_parallelism_new(const dltune::parallelism::Problem* problem) {
  return new Engine(*problem);
}

DLTUNE_DOOR void dltune_parallelism_delete(void* engine) { delete static_cast<Engine*>(engine); }

DLTUNE_DOOR void dltune_parallelism_set(void* engine, const std::int32_t* choices) {
  static_cast<Engine*>(engine)->graph.set(choices);
}

DLTUNE_DOOR void dltune_parallelism_get(void* engine, std::int32_t* choices) {
  const auto& choice = static_cast<Engine*>(engine)->graph.choice;
  std::copy(choice.begin(), choice.end(), choices);
}

// The task graph as after `set`, made anew around one operator.
DLTUNE_DOOR void dltune_parallelism_change(void* engine, std::int32_t op, std::int32_t choice) {
  static_cast<Engine*>(engine)->graph.change({{op, choice}});
}

DLTUNE_DOOR std::int64_t dltune_parallelism_simulate(void* engine) {
  Engine& own = *static_cast<Engine*>(engine);
  return own.graph.too_large() ? dltune::parallelism::kNever : own.simulation.run();
}

// Changes an operator's configuration and simulates from the first event that can differ.
DLTUNE_DOOR std::int64_t dltune_parallelism_delta(void* engine, std::int32_t op,
                                                  std::int32_t choice) {
  Engine& own = *static_cast<Engine*>(engine);
  return own.chain.delta(op, choice, &own.events);
}

// The events of the whole step, in the order in which they became ready; they hold until the next call.
DLTUNE_DOOR const dltune::parallelism::Shown* dltune_parallelism_timeline(void* engine,
                                                                          std::int32_t again,
                                                                          std::int64_t* count) {
  Engine& own = *static_cast<Engine*>(engine);
  if (again)
    own.simulation.run(std::numeric_limits<std::int64_t>::max(), &own.events);
  own.shown.clear();
  for (const auto& event : own.events) own.shown.push_back(dltune::parallelism::show(own, event));
  *count = static_cast<std::int64_t>(own.shown.size());
  return own.shown.data();
}

DLTUNE_DOOR void dltune_parallelism_totals(void* engine, dltune::parallelism::Totals* totals) {
  const auto& graph = static_cast<Engine*>(engine)->graph;
  const auto& problem = graph.problem();
  *totals = {};
  for (int o = 0; o < problem.operators; ++o)
    for (int task = 0; task < graph.division[o].tasks(); ++task) {
      totals->compute += graph.duration(o, task, false) + graph.duration(o, task, true);
      totals->tasks += 2;
    }
  for (int e = 0; e < problem.edges; ++e) {
    for (const auto& piece : graph.forward[e].pieces())
      if (piece.resource >= 0) ++totals->tasks, totals->forward_bytes += piece.bytes;
    for (const auto& piece : graph.backward[e].pieces())
      if (piece.resource >= 0) ++totals->tasks, totals->backward_bytes += piece.bytes;
  }
  for (const auto& sync : graph.synchronization) {
    for (const auto& hop : sync.hops) ++totals->tasks, totals->weight_bytes += hop.bytes;
    for (const auto& set : sync.sets)
      if (set.update) totals->tasks += static_cast<std::int64_t>(set.devices.size());
  }
  totals->load = graph.load();
}

// `best`: takes the best strategy.
DLTUNE_DOOR void dltune_parallelism_search(void* engine, const dltune::parallelism::Search* search,
                                           dltune::parallelism::Outcome* outcome,
                                           std::int32_t* best) {
  *outcome = static_cast<Engine*>(engine)->chain.run(*search, best);
}

// `best`: the strategy to beat, then the best found. `combined`: as Relaxation's.
DLTUNE_DOOR void dltune_parallelism_prove(void* engine, std::int32_t combined,
                                          const dltune::parallelism::Limits* limits,
                                          dltune::parallelism::Proof* proof, std::int32_t* best) {
  Engine& own = *static_cast<Engine*>(engine);
  dltune::parallelism::BranchAndBound search(&own.graph, &own.simulation, combined);
  *proof = search.run(*limits, best);
}

// Of each configuration of an operator; `members`: as alone's.
DLTUNE_DOOR void dltune_parallelism_alone(void* engine, std::int32_t op, std::int32_t members,
                                          std::int64_t* nanoseconds) {
  const auto& problem = static_cast<Engine*>(engine)->problem;
  const auto& own = problem.operator_[op];
  for (int c = 0; c < own.configurations; ++c)
    nanoseconds[c] = dltune::parallelism::alone(problem, own, c, members);
}

// Of each configuration of an operator, as if no other learned with it; 0 where it learns nothing.
DLTUNE_DOOR void dltune_parallelism_added(void* engine, std::int32_t op, std::int64_t* nanoseconds) {
  const auto& problem = static_cast<Engine*>(engine)->problem;
  const auto& own = problem.operator_[op];
  for (int c = 0; c < own.configurations; ++c)
    nanoseconds[c] = own.weights < 0 ? 0 : dltune::parallelism::added(problem, own, c);
}

// Of an edge for these choices of its producer and its consumer, the latter's the fastest.
DLTUNE_DOOR void dltune_parallelism_moved(void* engine, std::int32_t edge, std::int32_t producers,
                                          const std::int32_t* producer, std::int32_t consumers,
                                          const std::int32_t* consumer, std::int64_t* nanoseconds) {
  using namespace dltune::parallelism;
  const auto& problem = static_cast<::Engine*>(engine)->problem;
  const auto divide = [&](int op, int count, const std::int32_t* choices) {
    const auto& own = problem.operator_[op];
    std::vector<Division> found;
    for (int n = 0; n < count; ++n)
      found.emplace_back(own, problem.configuration[own.first_configuration + choices[n]],
                         problem.devices);
    return found;
  };
  const auto from = divide(problem.edge[edge].producer, producers, producer);
  const auto to = divide(problem.edge[edge].consumer, consumers, consumer);
  Busy busy(problem);
  for (const Division& a : from)
    for (const Division& b : to) *nanoseconds++ = moved(problem, problem.edge[edge], a, b, &busy);
}
