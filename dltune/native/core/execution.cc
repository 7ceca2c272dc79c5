#include "execution.h"

#include <algorithm>
#include <unordered_set>

#include "admission.h"
#include "channel.h"
#include "child.h"
#include "denormals.h"

namespace dltune {

std::atomic<int64_t> g_live_bytes{0}, g_peak_bytes{0};
std::atomic<int64_t> g_compiled_ns{0}, g_unmarked_ns{0}, g_waited_ns{0}, g_steps{0};

namespace {

constexpr int kMaxGraphs = 1 << 16;
std::atomic<Graph*> g_graphs[kMaxGraphs];
std::atomic<int> g_graph_count{0};

std::mutex g_keys_mu;
// What threads use is never destroyed: they run on while the process exits.
auto& g_keys = *new std::unordered_map<std::string, Key*>;

std::mutex g_clusters_mu;
auto& g_clusters = *new std::unordered_set<uint64_t>;
int64_t g_compiling_ns = 0;

std::mutex g_barrier_mu;
auto& g_barrier = *new std::condition_variable;
int64_t g_grants = 0;

std::string Hex(const uint64_t used[kMaxSlots / 64]) {
  char text[kMaxSlots / 4 + 1];
  int length = 0, top = kMaxSlots / 64 - 1;
  while (top > 0 && !used[top]) top--;
  length += snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(used[top]));
  for (int word = top - 1; word >= 0; word--)
    length += snprintf(text + length, sizeof text - length, "%016llx",
                       static_cast<unsigned long long>(used[word]));
  return text;
}

// For each event that was counted: its index, the running share, the values.
Json CountsOf(const std::vector<Event>& events, const std::vector<Counts>& counts) {
  std::vector<Json> counted;
  for (size_t i = 0; i < events.size(); i++) {
    if (events[i].counts < 0) continue;
    const Counts& mine = counts[events[i].counts];
    std::vector<Json> numbers{i, Json(mine.running, 4)};
    numbers.insert(numbers.end(), mine.value, mine.value + mine.n);
    counted.push_back(List(numbers));
  }
  return List(counted);
}

// For each node its number, and for each of its slots dtype, bytes and alias.
Json OutputsOf(const std::vector<std::pair<int, std::vector<Output>>>& outputs) {
  const auto slot = [](const Output& o) { return List({o.dtype, o.bytes, o.alias}); };
  return List(outputs, [&](const auto& of) { return List({of.first, List(of.second, slot)}); });
}

}  // namespace

void Grant(int64_t count) {
  {
    std::lock_guard<std::mutex> lock(g_barrier_mu);
    g_grants += count;
  }
  g_barrier.notify_all();
}

void WaitAtBarrier() {
  std::unique_lock<std::mutex> lock(g_barrier_mu);
  if (g_grants == 0) {
    const int64_t now = NowNs();
    Send([now] { return Object({{"type", "waiting"}, {"at", now}}); });
    g_barrier.wait(lock, [] { return g_grants > 0; });
  }
  g_grants--;
}

std::string MessageOf(const ExecutionRecord& record) {
  const auto tuple = [start = record.start](const Event& e) {
    return List({e.node, e.key, e.threads, e.thread, e.start - start, e.end - start, Hex(e.used)});
  };
  const auto level = [](const Event& e) { return e.live; };
  const auto scratch = [](const Event& e) { return e.scratch; };
  const auto collective = [start = record.start](const Collective& c) {
    return List({c.start - start, c.end - start});
  };
  return Object({{"type", "execution"},
                 {"graph", record.graph},
                 {"number", record.number},
                 {"version", record.version},
                 {"start", record.start},
                 {"overhead", record.overhead},
                 {"live", record.live},
                 {"peak", record.peak},
                 {"waited", record.waited},
                 {"events", List(record.events, tuple)},
                 {"counts", CountsOf(record.events, record.counts)},
                 {"levels", g_count_bytes ? List(record.events, level) : List({})},
                 {"scratch", g_count_bytes ? List(record.events, scratch) : List({})},
                 {"outputs", OutputsOf(record.outputs)},
                 {"collectives", List(record.collectives, collective)}});
}

// The step alone would not do: who was late may have begun it anew, in this very slot and under
// other orders.
bool Entered::Stands() const {
  return !execution->closed_ && execution->Holds(step) && execution->orders_ == orders;
}

void Entered::Add(Event event, const Counts* counted) const {
  std::lock_guard<std::mutex> lock(execution->mu_);
  if (!Stands()) return;
  ExecutionRecord& record = execution->record_;
  if (counted && counted->complete) {
    event.counts = static_cast<int>(record.counts.size());
    record.counts.push_back(*counted);
  }
  record.events.push_back(event);
}

void Entered::AddOutputs(Node* node, std::vector<Output> outputs) const {
  std::lock_guard<std::mutex> lock(execution->mu_);
  if (!Stands() || node->outputs_known.exchange(true)) return;
  execution->record_.outputs.emplace_back(node->index, std::move(outputs));
}

void Entered::Spend(int64_t ns) const {
  std::lock_guard<std::mutex> lock(execution->mu_);
  if (Stands()) execution->record_.overhead += ns;
}

void Execution::Begin(int64_t step, uint64_t number, const Orders* orders, bool target) {
  std::lock_guard<std::mutex> lock(mu_);
  step_.store(kNone, std::memory_order_relaxed);
  open_.store(false, std::memory_order_release);
  orders_.store(orders, std::memory_order_release);
  target_.store(target, std::memory_order_release);
  closed_ = false;
  record_.number = number;
  record_.version = orders->version;
  record_.overhead = 0;
  record_.events.clear();
  record_.counts.clear();
  record_.outputs.clear();
  step_.store(step, std::memory_order_release);
}

void Execution::Open(int64_t step) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!Holds(step)) return;  // more have begun than there are slots
  record_.live = g_live_bytes.load(std::memory_order_relaxed);
  g_peak_bytes.store(record_.live, std::memory_order_relaxed);
  record_.waited = g_waited_ns.load(std::memory_order_relaxed);
  record_.start = NowNs();
  open_.store(true, std::memory_order_release);
}

std::function<std::string()> Execution::Close(int graph) {
  std::lock_guard<std::mutex> lock(mu_);
  if (closed_ || !open()) return {};
  closed_ = true;
  if (!target_ && !orders_.load()->discover) return {};
  record_.graph = graph;
  record_.peak = g_peak_bytes.load(std::memory_order_relaxed);
  auto sent = std::make_shared<ExecutionRecord>(std::move(record_));
  record_ = {};
  record_.events.reserve(sent->events.size() + 64);
  return [sent] { return MessageOf(*sent); };
}

// Ops that find their execution at the barrier wait for it too.
Entered Graph::EnterSlow(int64_t step) {
  for (;;) {
    Execution* mine = nullptr;
    bool waits = false, fresh = false;
    {
      std::lock_guard<std::mutex> lock(mu);
      for (Execution& slot : slots)
        if (slot.Holds(step)) mine = &slot;
      if (!mine) {
        if (Execution* before = current.load()) Close(before);
        mine = &slots[executions % kSlots];
        const Orders* orders = OrdersFor(executions);
        const auto& targets = orders->targets;
        const bool target = std::find(targets.begin(), targets.end(), signature) != targets.end();
        mine->Begin(step, executions++, orders, target);
        current.store(mine, std::memory_order_release);
        waits = target && orders->barrier;
        fresh = true;
      }
    }
    if (fresh) {
      if (waits) WaitAtBarrier();
      {
        std::lock_guard<std::mutex> lock(g_barrier_mu);
        mine->Open(step);
      }
      g_barrier.notify_all();
    } else {
      std::unique_lock<std::mutex> lock(g_barrier_mu);
      g_barrier.wait(lock, [=] { return mine->open() || !mine->Holds(step); });
    }
    Entered entered;
    if (mine->Enter(step, &entered)) return entered;
  }
}

void Graph::Close(Execution* execution) {
  if (auto message = execution->Close(id)) Send(std::move(message), true);
}

void Graph::CloseCurrent() {
  std::lock_guard<std::mutex> lock(mu);
  if (Execution* now = current.load()) Close(now);
}

Graph* AddGraph(std::unique_ptr<Graph> graph) {
  const int id = g_graph_count.fetch_add(1);
  if (id >= kMaxGraphs) return nullptr;
  graph->id = id;
  for (auto& node : graph->nodes) node->identity = "@" + graph->signature + "/" + node->name;
  Graph* kept = graph.release();
  g_graphs[id].store(kept, std::memory_order_release);
  return kept;
}

Graph* FindGraph(int id) {
  return id >= 0 && id < kMaxGraphs ? g_graphs[id].load(std::memory_order_acquire) : nullptr;
}

Key* AddKey(const Node& node, const std::string& inputs) {
  const std::string text = node.type + "(" + inputs + ")" + node.attributes;
  std::lock_guard<std::mutex> lock(g_keys_mu);
  Key*& key = g_keys[text];
  if (!key) {
    key = new Key;
    key->id = static_cast<int>(g_keys.size()) - 1;
    key->text = text;
    const Key* made = key;
    const std::string type = node.type;
    Send([made, inputs, type] {
      return Object({{"type", "key"},
                     {"id", made->id},
                     {"key", made->text},
                     {"op", type},
                     {"inputs", inputs}});
    });
  }
  return key;
}

Variant* AddVariant(Node* node, uint64_t shapes, const std::string& inputs) {
  Key* const key = AddKey(*node, inputs);
  std::lock_guard<std::mutex> lock(g_keys_mu);
  for (Variant* v = node->variants.load(); v; v = v->next)
    if (v->shapes == shapes) return v;
  auto* variant = new Variant{shapes, key, node->variants.load()};
  node->variants.store(variant, std::memory_order_release);
  return variant;
}

void NoteOutputBytes(Key* key, int64_t bytes) {
  int64_t unknown = -1;
  if (!key->output_bytes.compare_exchange_strong(unknown, bytes)) return;
  const int id = key->id;
  Send([id, bytes] { return Object({{"type", "output"}, {"key", id}, {"bytes", bytes}}); });
}

void NoteCluster(uint64_t inputs, int64_t ns) {
  std::lock_guard<std::mutex> lock(g_clusters_mu);
  if (g_clusters.insert(inputs).second) g_compiling_ns += ns;
}

void Report(const char* why) {
  if (InChild()) return;
  LookForDenormals();
  const std::string reason = why;
  Send([reason] {
    std::vector<uint64_t> runs;  // by graph
    for (int id = 0; id < g_graph_count.load() && id < kMaxGraphs; id++) {
      const Graph* const graph = FindGraph(id);
      runs.push_back(graph ? graph->runs() : 0);
    }
    std::lock_guard<std::mutex> lock(g_clusters_mu);
    return Object({{"type", "report"},
                   {"why", reason},
                   {"at", NowNs()},
                   {"runs", List(runs, [](uint64_t count) { return Json(count); })},
                   {"xla", g_compiled_ns * 1e-9},
                   {"compilations", g_clusters.size()},
                   {"compiling", g_compiling_ns * 1e-9},
                   {"unmarked", g_unmarked_ns * 1e-9},
                   {"waited", g_waited_ns * 1e-9},
                   {"steps", g_steps.load()},
                   {"denormal_looks", g_denormal_looks.load()},
                   {"denormal", g_denormal.load()},
                   {"admission", AdmissionReport()}});
  });
}

void CloseAll() {
  if (InChild()) return;
  for (int id = 0; id < g_graph_count.load() && id < kMaxGraphs; id++)
    if (Graph* graph = FindGraph(id)) graph->CloseCurrent();
}

}  // namespace dltune
