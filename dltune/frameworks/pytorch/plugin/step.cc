#include "step.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "../../../native/core/channel.h"
#include "team.h"

namespace dltune {
namespace {

// Beyond these a job does something else than steps that repeat.
constexpr size_t kMaxOps = 1 << 18, kMaxGraphs = 1 << 10, kMaxTold = 1 << 19;
// Ops of a step that must be as expected before the others are known by their places: a batch of
// another size shows in the first that gets it.
constexpr size_t kFirst = 8;
// Steps in a row that must have been alike before; and after how many all are described anew.
constexpr int kEnough = 3, kMostEnough = 1 << 20;
constexpr uint64_t kAnew = 32;

struct EagerGraph {
  int id;
  std::string signature;
  uint64_t executions = 0;
  std::vector<Keyed*> ops;  // as they were described the last time
  uint64_t described = 0;   // that execution
  int alike = 0, enough = kEnough;
  // What follows it; and what has followed it instead the last time. One that does so twice in a row is
  // what follows from then on: where an epoch begins there is another step, once.
  EagerGraph* next = nullptr;
  EagerGraph* instead = nullptr;

  void NoteSuccessor(EagerGraph* by) {
    if (!next || by == instead) next = by;
    instead = by == next ? nullptr : by;
  }

  bool IsSteady() const { return alike >= enough && executions - described < kAnew; }

  // All of its ops were described. Those of a step that differed only after its first ones would have
  // been taken for others: it must be alike for longer.
  void NoteDescribed(const std::vector<Ran>& ran) {
    if (executions == 0) return;  // most of those that never come again need no memory
    described = executions;
    const auto is = [](const Keyed* op, const Ran& now) { return op == now.op; };
    const auto differs = std::mismatch(ops.begin(), ops.end(), ran.begin(), ran.end(), is).second;
    if (differs == ran.end() && ops.size() == ran.size()) {
      alike++;
      return;
    }
    if (alike >= enough && differs - ran.begin() >= static_cast<ptrdiff_t>(kFirst))
      enough = std::min(8 * enough, kMostEnough);
    alike = 0;
    ops.clear();
    for (const Ran& one : ran) ops.push_back(one.op);
  }
};

// Those of the step under way, which threads of their own begin and end.
struct Collectives {
  std::mutex mu;
  bool recorded = false;
  uint64_t step = 0;            // which one: what ends later than it is not told
  std::vector<Collective> all;  // `end` is 0 until it has

  void Begin(bool records) {
    std::lock_guard<std::mutex> lock(mu);
    recorded = records;
    step++;
    all.clear();
  }

  std::vector<Collective> Ended() {
    std::lock_guard<std::mutex> lock(mu);
    std::vector<Collective> ended;
    std::copy_if(all.begin(), all.end(), std::back_inserter(ended),
                 [](const Collective& one) { return one.end != 0; });
    return ended;
  }
};
// What threads use is never destroyed: they run on while the process exits.
auto& g_collectives = *new Collectives;

// Of orders, where the job's own number of threads is `own`: whether any op has another one, and how many
// an op of several has where teams have one size.
struct Summary {
  const Orders* orders = nullptr;
  int own = 0;
  bool steers = false;
  int team = 0;
};

struct State {
  std::unordered_map<std::string, EagerGraph> graphs;  // by signature
  size_t told = 0;  // ops of all graphs
  EagerGraph* last = nullptr;
  EagerGraph* expected = nullptr;
  const Orders* orders = nullptr;  // null: no step is under way
  Summary summary;
  bool told_of_teams = false;
  bool target = false, lost = false, complained = false;
  // Of its ops: some were known by their places; some of these were others.
  bool placed = false, strayed = false;
  bool steady = false;  // the first ops were as expected so far
  size_t first = 0;     // of them
  Wanted wanted;
  int64_t start = 0, overhead = 0;
  std::vector<Ran> ran;
  std::vector<Counts> counts;
};
auto& g = *new State;

bool IsTarget(const EagerGraph* graph, const Orders* orders) {
  const auto& targets = orders->targets;
  return graph && std::find(targets.begin(), targets.end(), graph->signature) != targets.end();
}

std::string Signature(const std::string& name, const std::vector<Ran>& ran) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](const std::string& text) {
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
    hash = (hash ^ 0xff) * 0x100000001b3;
  };
  add(name);
  for (const Ran& one : ran) add(one.op->kind->type);
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kBackward: return "backward/";
    case Phase::kOptimizer: return "optimizer/";
    default: return "forward/";
  }
}

// For each op, which one's gradient it computes; -1: of none that is known.
std::vector<int> Differentiated(const std::vector<Ran>& ran) {
  std::vector<int> of;
  std::map<uint64_t, int> by_first_node;
  for (const Ran& one : ran) {
    of.push_back(-1);
    if (one.node != kNoNode) {
      const auto node = static_cast<uint64_t>(one.node);
      const auto after = by_first_node.upper_bound(node);
      if (after != by_first_node.begin() && node < ran[std::prev(after)->second].next)
        of.back() = std::prev(after)->second;
    }
    if (one.next > one.number) by_first_node[one.number] = static_cast<int>(of.size()) - 1;
  }
  return of;
}

// A chain: each op waits for the one before; and one of the backward pass for that of the forward pass
// whose gradient it computes.
void Tell(const EagerGraph& graph, const std::string& name, const std::vector<Ran>& ran) {
  std::vector<std::pair<Phase, const Node*>> ops;
  for (const Ran& one : ran) ops.emplace_back(one.phase, one.op->kind);
  Send([id = graph.id, signature = graph.signature, name, ops = std::move(ops),
        differentiated = Differentiated(ran)] {
    std::unordered_map<std::string, int> seen;
    std::vector<Json> nodes;
    for (const auto& [phase, kind] : ops) {
      const std::string named =
          NameOf(phase) + kind->type + "_" + std::to_string(++seen[kind->type]);
      const int place = static_cast<int>(nodes.size()), forward = differentiated[place];
      std::vector<Json> before;
      if (place > 0) before.push_back(place - 1);
      if (forward >= 0) before.push_back(forward);
      nodes.push_back(List({named, kind->type, List({}), List(before), false}));
    }
    return Object({{"type", "graph"},
                   {"id", id},
                   {"signature", signature},
                   {"name", name},
                   {"device", ""},
                   {"xla", false},
                   {"eager", true},
                   {"nodes", List(nodes)}});
  });
}

// The graph that has just run; null when it cannot be told. Unheard it is what was expected.
EagerGraph* GraphThatRan(const std::string& name) {
  if (!g.wanted.hears) return g.expected;
  if (g.lost || g.ran.empty()) return nullptr;
  const std::string signature = Signature(name, g.ran);
  auto found = g.graphs.find(signature);
  if (found != g.graphs.end()) return &found->second;
  if (g.strayed) return nullptr;  // it can be told when it comes again
  if (g.graphs.size() == kMaxGraphs || g.told + g.ran.size() > kMaxTold) {
    if (!g.complained) Complain("the ops of the job differ from step to step");
    g.complained = true;
    return nullptr;  // what is expected stays as it is
  }
  EagerGraph& graph = g.graphs[signature];
  graph.id = static_cast<int>(g.graphs.size()) - 1;
  graph.signature = signature;
  g.told += g.ran.size();
  Tell(graph, name, g.ran);
  return &graph;
}

void SendExecution(const EagerGraph& graph) {
  auto record = std::make_shared<ExecutionRecord>();
  record->graph = graph.id;
  record->number = graph.executions;
  record->version = g.orders->version;
  record->start = g.start;
  record->overhead = g.overhead;
  if (g.wanted.records) {
    record->events.reserve(g.ran.size());
    for (const Ran& one : g.ran) {
      Event event{};
      event.node = static_cast<int>(record->events.size());
      event.key = one.op->key->id;
      event.threads = one.threads;
      event.start = one.start;
      event.end = one.end;
      event.counts = one.counts;
      record->events.push_back(event);
    }
    record->counts = g.counts;
  }
  record->collectives = g_collectives.Ended();
  Send([record] { return MessageOf(*record); }, true);
}

// Threads; 0: the job's own number.
int AsOrdered(const OpOrder& order) {
  // a rank may have fewer cores than were planned for
  if (order.view)
    return std::min(order.view->threads(), static_cast<int>(order.view->slots().size()));
  return order.by_admission && order.work.serial >= g.orders->small ? order.work.choice.threads : 0;
}

// Where teams of other sizes would cost threads; ops without orders have the job's own number.
int OneTeam(int own) {
  const int usual = g.orders->fallback.view ? AsOrdered(g.orders->fallback) : own;
  if (usual > 1) return usual;
  int most = 1;
  for (const auto& [key, order] : g.orders->ops) most = std::max(most, AsOrdered(order));
  return most;
}

const Summary& Summarized(int own) {
  if (g.summary.orders == g.orders && g.summary.own == own) return g.summary;
  const auto differs = [own](const OpOrder& order) {
    const int threads = AsOrdered(order);
    return threads && threads != own;
  };
  const auto& ops = g.orders->ops;
  const bool steers = differs(g.orders->fallback) ||
                      std::any_of(ops.begin(), ops.end(), [&](const auto& op) { return differs(op.second); });
  return g.summary = {g.orders, own, steers, OneTeam(own)};
}

// What was the next op the last time; null: there was none.
Keyed* Before() {
  const size_t place = g.ran.size();
  return g.expected && place < g.expected->ops.size() ? g.expected->ops[place] : nullptr;
}

}  // namespace

Wanted BeginStep(int own) {
  g.expected = g.last && g.last->next ? g.last->next : g.last;
  g.orders = OrdersFor(g.expected ? g.expected->executions : 0);
  g.target = IsTarget(g.expected, g.orders);
  if (g.target && g.orders->barrier) WaitAtBarrier();
  g.wanted.records = g.orders->discover || (g.target && g.orders->events);
  CounterGroup* const counters = g.wanted.records ? g.orders->counters : nullptr;
  g.wanted.counters = counters && !counters->refused ? counters : nullptr;
  // a plan that leaves all ops the job's own number costs nothing: they need not be heard of
  g.wanted.steers = g.target && g.orders->steers() && (g.wanted.records || Summarized(own).steers);
  g.wanted.flushes = g.target && g.orders->flush;
  const bool unmet = !g.target && !g.orders->targets.empty();  // it may be one of them all the same
  g.wanted.hears = g.wanted.records || g.wanted.steers || unmet;
  g.lost = g.placed = g.strayed = false;
  g.steady = g.expected && g.expected->IsSteady();
  g.first = 0;
  g.overhead = 0;
  g.ran.clear();
  g.counts.clear();
  g_collectives.Begin(g.wanted.records);
  g.start = NowNs();
  return g.wanted;
}

int ThreadsOf(Key* key, int own) {
  const int threads = AsOrdered(Ordered(&key->order, key->text, g.orders));
  if (threads < 2 || KeepsThreads()) return threads;
  const int team = Summarized(own).team;
  const int nearest = threads * threads < team ? 1 : team;
  if (threads != nearest && !std::exchange(g.told_of_teams, true))
    Complain("some ops get " + std::to_string(nearest) + " threads instead of " +
             std::to_string(threads) + ": with GNU's OpenMP runtime, each change of the thread count " +
             "would end and start threads (the setting openmp=intel avoids this)");
  return nearest;
}

bool ArePlaced(const Keyed* described) {
  g.steady = g.steady && !g.lost && described == Before();
  return g.steady && ++g.first >= kFirst;
}

Keyed* Undescribed(const std::string& type) {
  static auto& known = *new std::unordered_map<std::string, std::pair<Node, Keyed>>;
  auto& [node, op] = known[type];
  if (!op.kind) {
    node.type = type;
    op.kind = &node;
  }
  return &op;
}

Keyed* OpAtPlace(const std::string& type) {
  Keyed* const before = Before();
  return before && before->kind->type == type ? before : Undescribed(type);
}

void Add(const Ran& ran) {
  g.placed |= ran.placed;
  g.strayed |= !ran.op->key;
  g.lost |= g.ran.size() == kMaxOps;
  if (!g.lost) g.ran.push_back(ran);
}

int Add(const Counts& counts) {
  if (!counts.complete || g.lost) return -1;
  g.counts.push_back(counts);
  return static_cast<int>(g.counts.size()) - 1;
}

void Spend(int64_t ns) { g.overhead += ns; }

std::function<void()> BeginCollective() {
  std::lock_guard<std::mutex> lock(g_collectives.mu);
  if (!g_collectives.recorded) return nullptr;
  g_collectives.all.push_back({NowNs(), 0});
  return [place = g_collectives.all.size() - 1, step = g_collectives.step] {
    std::lock_guard<std::mutex> lock(g_collectives.mu);
    if (step == g_collectives.step) g_collectives.all[place].end = NowNs();
  };
}

void EndStep(const std::string& name) {
  if (!g.orders) return;
  g_steps++;
  EagerGraph* const graph = GraphThatRan(name);
  if (g.strayed && g.expected) g.expected->alike = 0;
  if (!graph) return;
  if (g.wanted.hears && !g.placed) graph->NoteDescribed(g.ran);
  const bool as_ordered = graph == g.expected || IsTarget(graph, g.orders) == g.target;
  if (as_ordered && !g.strayed && (g.target || g.orders->discover)) SendExecution(*graph);
  graph->executions++;
  if (g.last) g.last->NoteSuccessor(graph);
  g.last = graph;
}

}  // namespace dltune
