// C interface of the simulator and of the scheduler, for ctypes.
#include <cstdint>
#include <deque>
#include <memory>

#include "../native/mirrored.h"
#include "admission.h"
#include "engine.h"
#include "fifo.h"
#include "link.h"
#include "resources.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace dltune;
using namespace dltune::sim;

struct CWork {
  std::int32_t op, count;
  double serial;
  double seconds[1 + kCandidates];  // the choice first
  std::int32_t threads[1 + kCandidates];
  std::int32_t shared[1 + kCandidates];
  std::int32_t admitted, detached;
  const std::int32_t* cores;
  std::int32_t placed;  // how many of `cores` there are
};

Candidate candidate(const CWork& w, int k) {
  return {w.threads[k], w.shared[k] ? Placement::shared : Placement::spread, w.seconds[k]};
}

Work work(const CWork& w) {
  Work out;
  out.op = w.op;
  out.serial = w.serial;
  out.choice = candidate(w, 0);
  out.count = std::min(w.count, kCandidates);
  for (int k = 0; k < out.count; ++k) out.candidates[k] = candidate(w, k + 1);
  return out;
}

struct CGraph {
  std::int32_t tasks;
  const std::int32_t *offsets, *edges, *op;
  const double* runs;
};

struct CCores {
  std::int32_t count;
  const std::int32_t *tile, *hardware;
  double smt_throughput;  // 0: not stated
};

struct CFifo {
  const FifoOp* ops;
  std::int32_t cores, inter;
  double overhead, oversubscription, crowding;
};

struct CCorun {
  const CWork* ops;
  std::int32_t count, inter;
  double overhead, crowding;
  std::int32_t corun, hyperthreads;
};

// Core sets come first among the resources, then links.
struct CResources {
  const std::int32_t* where;             // per task: its resource
  const double *bytes, *priority;        // per task, of those on links
  const CFifo* cores;
  const LinkAbout* links;
  std::int32_t core_sets, link_count;
};

struct CTimeline {
  double *start, *end;  // of each task
  double makespan, corunning;
};

// Unless `held` is null: each task's cores as a bit set of `words`, and whether it ran on a second
// hardware thread.
struct CPlaces {
  std::uint64_t* held;
  std::int32_t words;
  std::uint8_t* second;
};

Options options(const CCores& cores, bool corun, bool hyperthreads) {
  Options out;
  out.corun = corun;
  out.hyperthreads = hyperthreads;
  if (cores.smt_throughput > 0) out.smt_throughput = cores.smt_throughput;
  return out;
}

Fifo fifo(const CGraph& graph, const CFifo& about) {
  return {graph.op,       graph.runs,             about.ops,     about.cores, about.inter,
          about.overhead, about.oversubscription, about.crowding};
}

int replay(const CGraph& graph, Policy& policy, CTimeline* out) {
  Timeline timeline{out->start, out->end};
  run({graph.tasks, graph.offsets, graph.edges}, policy, &timeline);
  out->makespan = timeline.makespan;
  out->corunning = timeline.corunning;
  return timeline.done;
}

}  // namespace

DLTUNE_MIRRORED(Work, CWork)
DLTUNE_MIRRORED(FifoOp, FifoOp)
DLTUNE_MIRRORED(Graph, CGraph)
DLTUNE_MIRRORED(Cores, CCores)
DLTUNE_MIRRORED(Fifo, CFifo)
DLTUNE_MIRRORED(Corun, CCorun)
DLTUNE_MIRRORED(Link, LinkAbout)
DLTUNE_MIRRORED(Resources, CResources)
DLTUNE_MIRRORED(Timeline, CTimeline)
DLTUNE_MIRRORED(Places, CPlaces)

// Each returns how many tasks ended; fewer than there are means that the graph has a cycle.
EXPORT int dltune_fifo(const CGraph* graph, const CFifo* about, CTimeline* out) {
  Fifo policy = fifo(*graph, *about);
  return replay(*graph, policy, out);
}

EXPORT int dltune_resources(const CGraph* graph, const CResources* about, CTimeline* out) {
  std::deque<Fifo> cores;
  std::deque<Link> links;
  std::vector<Policy*> each;
  for (int i = 0; i < about->core_sets; ++i)
    each.push_back(&cores.emplace_back(fifo(*graph, about->cores[i])));
  for (int i = 0; i < about->link_count; ++i)
    each.push_back(&links.emplace_back(about->links[i], about->bytes, about->priority));
  Resources policy(about->where, each);
  return replay(*graph, policy, out);
}

EXPORT int dltune_corun(const CGraph* graph, const CCores* cores, const CCorun* about,
                        CTimeline* out, CPlaces* places) {
  std::vector<AdmissionOp> ops;
  ops.reserve(about->count);
  for (int i = 0; i < about->count; ++i) {
    const CWork& op = about->ops[i];
    ops.push_back({work(op), op.admitted != 0, op.detached != 0, {op.cores, op.cores + op.placed}});
    ops.back().work.op = -1;  // no interference is simulated, so none may be learnt
  }
  Admitted policy(graph->op, graph->runs, ops.data(), cores->tile, cores->hardware, cores->count,
                  about->inter, about->overhead, about->crowding,
                  options(*cores, about->corun != 0, about->hyperthreads != 0), graph->tasks);
  const int done = replay(*graph, policy, out);
  for (int t = 0; t < graph->tasks && places->held; ++t) {
    std::uint64_t* held = places->held + static_cast<std::size_t>(t) * places->words;
    for (int core : policy.places(t)) held[core / 64] |= std::uint64_t{1} << (core % 64);
    places->second[t] = policy.second(t);
  }
  return done;
}

EXPORT Scheduler* dltune_scheduler_new(const CCores* cores, int corun, int hyperthreads) {
  return new Scheduler(cores->tile, cores->hardware, cores->count,
                       options(*cores, corun != 0, hyperthreads != 0));
}

EXPORT void dltune_scheduler_delete(Scheduler* scheduler) { delete scheduler; }

EXPORT void dltune_scheduler_avoid(Scheduler* scheduler, int a, int b) {
  scheduler->interference().avoid(a, b);
}

EXPORT int dltune_scheduler_avoided(const Scheduler* scheduler, int a, int b) {
  return const_cast<Scheduler*>(scheduler)->interference().avoided(a, b);
}

EXPORT void dltune_scheduler_ready(Scheduler* scheduler, std::uint64_t ticket,
                                   const CWork* about) {
  scheduler->ready(ticket, work(*about));
}

EXPORT void dltune_scheduler_finished(Scheduler* scheduler, std::uint64_t ticket, double now) {
  scheduler->finished(ticket, now);
}

// Takes up to `room` admissions: ticket, threads, seconds, whether on a second hardware thread,
// cores. Returns how many there are.
EXPORT int dltune_scheduler_decide(Scheduler* scheduler, double now, int room,
                                   std::uint64_t* ticket, std::int32_t* threads, double* seconds,
                                   std::uint8_t* second, std::uint64_t* held, int words) {
  std::vector<Admission> admissions;
  scheduler->decide(now, &admissions);
  const int n = std::min(room, static_cast<int>(admissions.size()));
  for (int i = 0; i < n; ++i) {
    const Admission& a = admissions[i];
    ticket[i] = a.ticket;
    threads[i] = a.threads;
    seconds[i] = a.seconds;
    second[i] = a.second;
    a.cores.each([&](int core) {
      held[static_cast<std::size_t>(i) * words + core / 64] |= std::uint64_t{1} << (core % 64);
    });
  }
  return static_cast<int>(admissions.size());
}
