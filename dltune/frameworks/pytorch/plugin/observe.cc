// Observes each op that the stepping thread runs, and the end of each step.
#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "../../../native/core/channel.h"
#include "../../../native/core/child.h"
#include "key.h"
#include "step.h"
#include "team.h"

namespace dltune {
namespace {

// An op with at least so many calls to other ops has these not observed: turning observation off and on
// again costs about as much as observing three ops.
constexpr int kMany = 3;

// The state of this thread.
struct Within {
  bool steps = false;  // it is the thread that steps
  bool op = false;
  int calls = 0;       // to other ops, made by the present op
  bool begun = false;  // the forward pass of this step
  int backward = 0, optimizer = 0;
  bool off_nodes = false;  // in a backward pass, before or after the nodes' own ops
  int64_t node = kNoNode;  // the number of autograd's node, in a backward pass
};
thread_local Within tl;

Wanted g_wanted;
bool g_gives_threads = false;
bool g_by_passes = false;  // steps end with backward passes
at::CallbackHandle g_nodes = 0;  // 0: in no backward pass that was reported
// True if the callback of ops, once registered, receives their inputs and their outputs.
bool g_gives_inputs = false, g_gives_outputs = false;
bool g_bytes_unknown = false;  // the output bytes of an op that was recorded
bool g_hooked = false;  // ops have run off nodes, such as those of a gradient's hooks or of DDP
int g_own = 0, g_width = 0, g_imposed = 0, g_had = 0;

void GiveWidth(int threads) {
  if (threads == g_width) return;
  SetWidth(threads);
  g_width = threads;
}

// Reads the job's own number of threads. If dltune imposes a number, sets it first, and again whenever
// the script has changed it.
void TakeOwnWidth() {
  if (g_intra > 0 && (g_intra != g_imposed || OwnWidth() != g_had)) {
    SetOwnWidth(g_imposed = g_intra);
    g_had = OwnWidth();
  }
  g_own = g_width = OwnWidth();
}

// Treats denormal numbers as zero, or no longer, in this thread and in the other threads of the job's
// own number, on which its ops run.
void Flush(bool flushes) {
  static bool flushed = false;
  if (flushes == std::exchange(flushed, flushes)) return;
  OnEachThread([](void*) { at::globalContext().setFlushDenormal(flushed); });
}

struct Seen : at::ObserverContext {
  enum { kOp, kBackward, kOptimizer, kCollective } what = kOp;
  Ran ran{};
  int64_t began = 0;
  int width = 1;     // number of threads whose events are counted
  Readings counted;  // the counters when it began
  bool outputs = false;  // the callback receives the op's outputs
  bool alone = false;  // the ops that it calls are not observed
};

struct SeenCollective : Seen {
  std::function<void()> ends;
};

using Callback = at::RecordFunctionCallback;

// Functions of all callbacks that the plugin has registered.
auto& g_registered = *new std::vector<Callback::StartCallback>;

// Adds a callback to this thread. It stays until it is removed, or until the node of autograd ends in
// which it was added.
at::CallbackHandle Register(const Callback& callback) {
  if (std::find(g_registered.begin(), g_registered.end(), callback.start()) == g_registered.end())
    g_registered.push_back(callback.start());
  return at::addThreadLocalCallback(callback);
}

// Returns true if only the plugin has callbacks, and no other observer such as the script's own
// profiler. The number of the plugin's callbacks differs within and outside a backward pass.
bool IsSoleObserver() {
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  return !at::hasGlobalCallbacks() &&
         std::all_of(callbacks.begin(), callbacks.end(), [](const auto& one) {
           return std::find(g_registered.begin(), g_registered.end(), one.callback_.start()) !=
                  g_registered.end();
         });
}

// `steers`: the op can get its own thread count.
std::unique_ptr<Seen> Enter(Keyed* op, bool placed, int64_t began, bool steers) {
  auto seen = std::make_unique<Seen>();
  seen->ran.op = op;
  // within an optimizer's step a closure can run the forward and backward pass
  seen->ran.phase = tl.backward                                   ? Phase::kBackward
                    : tl.optimizer && !at::GradMode::is_enabled() ? Phase::kOptimizer
                                                                  : Phase::kForward;
  seen->ran.placed = placed;
  seen->began = began;
  seen->ran.node = tl.node;
  seen->ran.number = at::sequence_number::peek();
  if (g_wanted.steers && Width() != g_width) TakeOwnWidth();  // the script has set it
  if (steers && op->key) seen->ran.threads = ThreadsOf(op->key, g_own);
  GiveWidth(seen->ran.threads ? seen->ran.threads : g_own);
  tl.op = true;
  tl.calls = 0;
  seen->alone = op->calls >= kMany && IsSoleObserver();
  if (seen->alone) at::enableRecordFunction(false);
  seen->width = steers ? g_width : 1;
  if (g_wanted.counters) seen->counted = ReadTeam(g_wanted.counters, seen->width);
  if (g_wanted.records) seen->ran.start = NowNs();
  return seen;
}

void HearOps(bool hear, bool with_inputs, bool with_outputs);

std::unique_ptr<at::ObserverContext> OpBegins(const at::RecordFunction& op) {
  tl.calls++;
  if (!tl.steps || tl.op || InChild()) return nullptr;
  const Name& name = NameOf(op.name());
  if (name.part == Part::kTransparent) {
    // a differentiated Python function computes without gradients, like a compiled model
    tl.begun |= name.text.find("::") == name.text.npos && at::GradMode::is_enabled();
    return nullptr;
  }
  if (name.part == Part::kBackward) {
    auto seen = std::make_unique<Seen>();
    seen->what = Seen::kBackward;
    tl.backward++;
    tl.off_nodes = true;
    return seen;
  }
  g_hooked |= tl.off_nodes;
  // such as validation between two steps, which belongs to neither of them
  if (!tl.begun && !tl.backward && !tl.optimizer && !at::GradMode::is_enabled()) return nullptr;
  const int64_t began = g_wanted.records ? NowNs() : 0;
  const bool placed = !g_gives_inputs, outputs = g_gives_outputs;
  Keyed* const known = placed ? OpAtPlace(name.text) : &KeyOf(op, name);
  // a change made within a backward pass would end with the pass
  if (!placed && ArePlaced(known) && !tl.backward) HearOps(true, false, outputs);
  const bool steers = g_wanted.steers && g_gives_threads && name.part != Part::kCompiled;
  auto seen = Enter(known, placed, began, steers);
  seen->outputs = outputs;
  return seen;
}

void OpEnds(const at::RecordFunction& op, at::ObserverContext* context) {
  auto* const seen = static_cast<Seen*>(context);
  if (!seen || InChild()) return;
  if (seen->what == Seen::kBackward) {
    tl.backward--;
    tl.off_nodes = g_nodes;
    return;
  }
  Ran& ran = seen->ran;
  if (g_wanted.records) ran.end = NowNs();
  if (CounterGroup* const group = g_wanted.counters) {
    Counts counts = CountedSince(seen->counted, group, seen->width);
    // if reading takes longer than the op, most counts of the other threads come from outside the op
    const int64_t took = NowNs() - seen->counted.began;
    counts.complete &= seen->width == 1 || took < 2 * (ran.end - ran.start);
    ran.counts = Add(counts);
  }
  if (seen->alone) at::enableRecordFunction(true);
  if (ran.op->calls < 0) ran.op->calls = tl.calls;
  tl.op = false;
  ran.next = at::sequence_number::peek();
  Add(ran);
  tl.begun = tl.begun || ran.next != ran.number;
  // for ops that are not observed, and for scripts that query the number
  if (ran.threads && Width() == g_width) GiveWidth(g_own);
  Key* const key = ran.op->key;
  if (!g_wanted.records || !key) return;
  if (key->output_bytes < 0) {
    if (seen->outputs) NoteOutputBytes(key, OutputBytes(op));
    g_bytes_unknown |= !seen->outputs;
  }
  Spend(NowNs() - seen->began - (ran.end - ran.start));
}

Callback CallbackOfOps() {
  return Callback(OpBegins, OpEnds)
      .needsInputs(g_gives_inputs)
      .needsOutputs(g_gives_outputs)
      .scopes({at::RecordScope::FUNCTION});
}

// Ops are observed only in steps that need it: each takes half a microsecond. The present state is read
// from PyTorch: within a backward pass autograd restores the callbacks from before the pass.
void HearOps(bool hear, bool with_inputs, bool with_outputs) {
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  const auto known = std::find_if(callbacks.begin(), callbacks.end(), [](const auto& one) {
    return one.callback_.start() == &OpBegins;
  });
  const bool hears = known != callbacks.end();
  const bool alike = g_gives_inputs == with_inputs && g_gives_outputs == with_outputs;
  if (hear == hears && (alike || !hear)) return;
  if (hears) at::removeCallback(known->handle_);
  if (!hear) return;
  g_gives_inputs = with_inputs;
  g_gives_outputs = with_outputs;
  static auto callback = CallbackOfOps();
  if (!alike) callback = CallbackOfOps();
  Register(callback);
}

// Observes the ops of a node of autograd. After the node, autograd restores the callbacks from before.
std::unique_ptr<at::ObserverContext> NodeBegins(const at::RecordFunction& node) {
  tl.off_nodes = false;
  tl.node = node.seqNr();
  if (tl.steps && !tl.op && g_wanted.hears && !InChild())
    HearOps(true, g_gives_inputs, g_gives_outputs);
  return nullptr;
}

void Begin() {
  GiveWidth(g_own);
  g_wanted = BeginStep(g_own);
  TakeOwnWidth();
  if (g_wanted.counters)
    ForgetTeams();
  else if (!g_wanted.records)  // and this step does not take turns with counted steps
    CloseTeams();
  Flush(g_wanted.flushes);
  tl.begun = g_by_passes;  // the script then updates parameters without gradients
  HearOps(g_wanted.hears, true, g_wanted.hears && std::exchange(g_bytes_unknown, false));
}

// Runs on a thread of the collective's backend, which has the callbacks of the requesting thread.
std::unique_ptr<at::ObserverContext> CollectiveBegins() {
  auto ends = BeginCollective();
  if (!ends) return nullptr;
  auto seen = std::make_unique<SeenCollective>();
  seen->what = Seen::kCollective;
  seen->ends = std::move(ends);
  return seen;
}

std::unique_ptr<at::ObserverContext> ScopeBegins(const at::RecordFunction& scope) {
  if (!InChild() && std::strstr(scope.name(), ":all_reduce")) return CollectiveBegins();
  if (!tl.steps || tl.op || InChild()) return nullptr;
  if (BeginsLike(scope.name(), "Optimizer.")) {
    auto seen = std::make_unique<Seen>();
    seen->what = Seen::kOptimizer;
    tl.optimizer++;
    return seen;
  }
  if (!g_wanted.hears || !BeginsLike(scope.name(), "enumerate(DataLoader)")) return nullptr;
  if (!tl.begun && !at::GradMode::is_enabled()) return nullptr;
  return Enter(&KeyOf("DataLoader"), false, g_wanted.records ? NowNs() : 0, false);
}

void ScopeEnds(const at::RecordFunction& scope, at::ObserverContext* context) {
  auto* const seen = static_cast<Seen*>(context);
  if (!seen || InChild()) return;
  if (seen->what == Seen::kOp) return OpEnds(scope, context);
  if (seen->what == Seen::kCollective) return static_cast<SeenCollective*>(seen)->ends();
  // some scripts step at each gradient, within the backward pass; the end of the pass ends their step
  if (--tl.optimizer > 0 || tl.backward || !BeginsLike(scope.name(), "Optimizer.step#")) return;
  g_by_passes = false;
  EndStep(scope.name());
  Begin();
}

// Observes the calling thread from now on.
void Observe() {
  const std::string runtime = FindRuntime();
  g_gives_threads = !runtime.empty();
  if (!g_gives_threads)
    Complain(
        "this PyTorch cannot change the thread count of single ops: they keep the job's count");
  TakeOwnWidth();
  g_count_bytes = false;  // nothing is known about memory here
  tl.steps = true;
  Send([runtime, own = g_own] {
    return Object({{"type", "device"},
                   {"intra", own},
                   {"inter", 1},
                   {"asked_intra", 0},
                   {"asked_inter", 0},
                   {"openmp", runtime}});
  });
  Register(Callback(ScopeBegins, ScopeEnds).scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace
}  // namespace dltune

#define DLTUNE_API extern "C" __attribute__((visibility("default")))

// Opens the channel, like the plugin for TensorFlow. The calling thread is the stepping thread.
DLTUNE_API const char* dltune_open(const char* socket, const char* hello) {
  static std::string complaint;
  complaint = dltune::OpenChannel(socket, hello);
  if (complaint.empty()) dltune::Observe();
  return complaint.c_str();
}

// Lets backward passes end the steps of this thread from now on: the script has no optimizer.
DLTUNE_API void dltune_step_by_passes() { dltune::g_by_passes = true; }

// Begins a backward pass of this thread. Returns 1 if it is the stepping thread; the end of the pass must
// then be reported. While ops are observed, autograd makes a text for each of its nodes, which takes a
// microsecond (std::ostringstream). Ops known by their places are therefore observed only within nodes.
DLTUNE_API int dltune_pass_begins() {
  using namespace dltune;
  if (!tl.steps || InChild()) return 0;
  if (tl.backward++ == 0 && g_wanted.hears)
    g_nodes = Register(Callback(NodeBegins).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  tl.off_nodes = g_nodes;
  if (g_nodes && !g_gives_inputs && !g_hooked) HearOps(false, g_gives_inputs, g_gives_outputs);
  return 1;
}

DLTUNE_API void dltune_pass_ends() {
  using namespace dltune;
  if (InChild()) return;
  if (--tl.backward == 0 && g_nodes) at::removeCallback(std::exchange(g_nodes, 0));
  if (tl.backward == 0) tl.node = kNoNode;
  tl.off_nodes = false;
  if (!g_by_passes || tl.backward)
    return HearOps(g_wanted.hears, g_gives_inputs, g_gives_outputs);
  EndStep("backward pass");
  Begin();
}

DLTUNE_API void dltune_close() {
  dltune::Report("exit");
  dltune::Flush();
}
