// Hears of each op that the stepping thread runs, and of what ends a step.
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>

#include "../../native/core/channel.h"
#include "../../native/core/child.h"
#include "key.h"
#include "step.h"
#include "width.h"

namespace dltune {
namespace {

// What this thread is within.
struct Within {
  bool steps = false;  // it is the thread that steps
  bool op = false;
  bool begun = false;  // the forward pass of this step
  int backward = 0, optimizer = 0;
};
thread_local Within tl;

Wanted g_wanted;
bool g_gives_threads = false;
at::CallbackHandle g_ops = 0;
int g_own = 0, g_width = 0, g_imposed = 0;

void GiveWidth(int threads) {
  if (threads == g_width) return;
  SetWidth(threads);
  g_width = threads;
}

// What the job's own number is now, or is to be from now on.
void TakeOwnWidth() {
  if (g_intra > 0 && g_intra != g_imposed) SetOwnWidth(g_imposed = g_intra);
  g_own = g_width = OwnWidth();
}

bool BeginsLike(const char* name, const char* start) {
  return std::strncmp(name, start, std::strlen(start)) == 0;
}

// Gives out memory of its input and computes nothing, or stands around other ops.
bool Transparent(const char* name) {
  static const auto& known = *new std::unordered_map<std::string, bool>{
#define VIEW(name) {"aten::" name, true}
      VIEW("alias"),      VIEW("as_strided"), VIEW("chunk"),      VIEW("contiguous"),
      VIEW("detach"),     VIEW("diagonal"),   VIEW("expand"),     VIEW("expand_as"),
      VIEW("flatten"),    VIEW("lift_fresh"), VIEW("movedim"),    VIEW("narrow"),
      VIEW("permute"),    VIEW("reshape"),    VIEW("_reshape_alias"), VIEW("select"),
      VIEW("slice"),      VIEW("split"),      VIEW("split_with_sizes"), VIEW("squeeze"),
      VIEW("swapaxes"),   VIEW("t"),          VIEW("to"),         VIEW("transpose"),
      VIEW("unbind"),     VIEW("unflatten"),  VIEW("unfold"),     VIEW("unsafe_split"),
      VIEW("_unsafe_view"), VIEW("unsqueeze"), VIEW("view"),      VIEW("view_as"),
      VIEW("detach_"),    VIEW("result_type"),
#undef VIEW
  };
  const char* const library = std::strstr(name, "::");
  return !library || BeginsLike(name, "autograd::") || BeginsLike(name, "profiler::") ||
         BeginsLike(name, "torch::autograd::") || known.count(name) > 0;
}

struct Seen : at::ObserverContext {
  enum { kOp, kBackward, kOptimizer } what = kOp;
  Ran ran{};
  int64_t began = 0;
};

// `steers`: it may have threads of its own.
std::unique_ptr<at::ObserverContext> Enter(const Keyed& keyed, int64_t began, bool steers) {
  auto seen = std::make_unique<Seen>();
  seen->ran.kind = keyed.kind;
  seen->ran.key = keyed.key;
  seen->began = began;
  if (steers) seen->ran.threads = ThreadsOf(keyed.key);
  GiveWidth(seen->ran.threads ? seen->ran.threads : g_own);
  tl.op = true;
  if (g_wanted.records) seen->ran.start = NowNs();
  return seen;
}

std::unique_ptr<at::ObserverContext> OpBegins(const at::RecordFunction& op) {
  if (!tl.steps || tl.op || InChild()) return nullptr;
  if (BeginsLike(op.name(), "autograd::engine::")) {
    auto seen = std::make_unique<Seen>();
    seen->what = Seen::kBackward;
    tl.backward++;
    return seen;
  }
  if (Transparent(op.name())) return nullptr;
  // validation between two steps, say, is of neither
  if (!tl.begun && !tl.backward && !tl.optimizer && !at::GradMode::is_enabled()) return nullptr;
  const int64_t began = g_wanted.records ? NowNs() : 0;
  return Enter(KeyOf(op), began, g_wanted.steers && g_gives_threads);
}

void OpEnds(const at::RecordFunction& op, at::ObserverContext* context) {
  auto* const seen = static_cast<Seen*>(context);
  if (!seen || InChild()) return;
  if (seen->what == Seen::kBackward) {
    tl.backward--;
    return;
  }
  if (g_wanted.records) seen->ran.end = NowNs();
  tl.op = false;
  tl.begun = tl.begun || (at::GradMode::is_enabled() && RequiresGrad(op));
  Add(seen->ran);
  if (!g_wanted.records) return;
  if (seen->ran.key->output_bytes < 0) NoteOutputBytes(seen->ran.key, OutputBytes(op));
  Spend(NowNs() - seen->began - (seen->ran.end - seen->ran.start));
}

// Ops are heard of only in steps that want it: hearing of one takes half a microsecond. Whether they
// are is looked up: within a backward pass autograd puts back the callbacks that were there before it.
void HearOps(bool hear) {
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  const bool hears = std::any_of(callbacks.begin(), callbacks.end(),
                                 [](const auto& one) { return one.handle_ == g_ops; });
  if (hear == hears) return;
  if (hear) {
    g_ops = at::addThreadLocalCallback(at::RecordFunctionCallback(OpBegins, OpEnds)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
  } else {
    at::removeCallback(g_ops);
  }
}

void Begin() {
  GiveWidth(g_own);
  g_wanted = BeginStep();
  TakeOwnWidth();
  tl.begun = false;
  HearOps(g_wanted.hears);
}

std::unique_ptr<at::ObserverContext> ScopeBegins(const at::RecordFunction& scope) {
  if (!tl.steps || tl.op || InChild()) return nullptr;
  if (BeginsLike(scope.name(), "Optimizer.")) {
    auto seen = std::make_unique<Seen>();
    seen->what = Seen::kOptimizer;
    tl.optimizer++;
    return seen;
  }
  if (!g_wanted.hears || !BeginsLike(scope.name(), "enumerate(DataLoader)")) return nullptr;
  if (!tl.begun && !at::GradMode::is_enabled()) return nullptr;
  return Enter(KeyOf("DataLoader"), g_wanted.records ? NowNs() : 0, false);
}

void ScopeEnds(const at::RecordFunction& scope, at::ObserverContext* context) {
  auto* const seen = static_cast<Seen*>(context);
  if (!seen || InChild()) return;
  if (seen->what == Seen::kOp) return OpEnds(scope, context);
  if (--tl.optimizer > 0 || !BeginsLike(scope.name(), "Optimizer.step#")) return;
  EndStep(scope.name());
  Begin();
}

// Of the thread that calls it, from now on.
void Observe() {
  const std::string runtime = FindRuntime();
  g_gives_threads = !runtime.empty();
  if (!g_gives_threads)
    Complain("nothing here sets the threads of PyTorch's ops one by one: they keep the job's");
  TakeOwnWidth();
  g_count_bytes = false;  // of memory nothing is known here
  tl.steps = true;
  Send([runtime, own = g_own] {
    return Object({{"type", "device"},
                   {"intra", own},
                   {"inter", 1},
                   {"asked_intra", 0},
                   {"asked_inter", 0},
                   {"openmp", runtime}});
  });
  at::addThreadLocalCallback(at::RecordFunctionCallback(ScopeBegins, ScopeEnds)
                                 .scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace
}  // namespace dltune

#define DLTUNE_API extern "C" __attribute__((visibility("default")))

// As in the plugin for TensorFlow; the calling thread is the one that steps.
DLTUNE_API const char* dltune_open(const char* socket, const char* hello) {
  static std::string complaint;
  complaint = dltune::OpenChannel(socket, hello);
  if (complaint.empty()) dltune::Observe();
  return complaint.c_str();
}

DLTUNE_API void dltune_close() {
  dltune::Report("exit");
  dltune::Flush();
}
