#include "execution.h"

#include <algorithm>

#include "admission.h"
#include "channel.h"
#include "child.h"

namespace dltune {

std::atomic<int64_t> g_live_bytes{0}, g_peak_bytes{0};
std::atomic<int64_t> g_compiled_ns{0}, g_unmarked_ns{0}, g_waited_ns{0};

namespace {

constexpr int kMaxGraphs = 1 << 16;
std::atomic<Graph*> g_graphs[kMaxGraphs];
std::atomic<int> g_graph_count{0};

std::mutex g_keys_mu;
// What threads use is never destroyed: they run on while the process exits.
auto& g_keys = *new std::unordered_map<std::string, Key*>;

std::mutex g_barrier_mu;
auto& g_barrier = *new std::condition_variable;
int64_t g_grants = 0;

void WaitAtBarrier() {
  std::unique_lock<std::mutex> lock(g_barrier_mu);
  if (g_grants == 0) {
    const int64_t now = NowNs();
    Send([now] { return "{\"type\":\"waiting\",\"at\":" + std::to_string(now) + "}"; });
    g_barrier.wait(lock, [] { return g_grants > 0; });
  }
  g_grants--;
}

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
std::string Json(const std::vector<Event>& events, const std::vector<Counts>& counts) {
  std::string out = "[";
  char number[48];
  for (size_t i = 0; i < events.size(); i++) {
    if (events[i].counts < 0) continue;
    const Counts& counted = counts[events[i].counts];
    snprintf(number, sizeof number, "[%zu,%.4g", i, counted.running);
    out += (out.size() > 1 ? "," : "") + std::string(number);
    for (int k = 0; k < counted.n; k++) {
      snprintf(number, sizeof number, ",%.10g", counted.value[k]);
      out += number;
    }
    out += ']';
  }
  return out + ']';
}

// For each node its number, and for each of its slots dtype, bytes and alias.
std::string Json(const std::vector<std::pair<int, std::vector<Output>>>& outputs) {
  std::string out = "[";
  for (auto& [node, slots] : outputs) {
    out += (out.size() > 1 ? ",[" : "[") + std::to_string(node) + ",[";
    for (size_t i = 0; i < slots.size(); i++)
      out += (i ? ",[" : "[") + Quote(slots[i].dtype) + "," + std::to_string(slots[i].bytes) + "," +
             std::to_string(slots[i].alias) + "]";
    out += "]]";
  }
  return out + ']';
}

}  // namespace

void Grant(int64_t count) {
  {
    std::lock_guard<std::mutex> lock(g_barrier_mu);
    g_grants += count;
  }
  g_barrier.notify_all();
}

void Entered::Add(Event event, const Counts* counted) const {
  std::lock_guard<std::mutex> lock(execution->mu_);
  if (execution->closed_ || !execution->Holds(step)) return;
  if (counted && counted->complete) {
    event.counts = static_cast<int>(execution->counts_.size());
    execution->counts_.push_back(*counted);
  }
  execution->events_.push_back(event);
}

void Entered::AddOutputs(Node* node, std::vector<Output> outputs) const {
  std::lock_guard<std::mutex> lock(execution->mu_);
  if (execution->closed_ || !execution->Holds(step) || node->outputs_known.exchange(true)) return;
  execution->outputs_.emplace_back(node->index, std::move(outputs));
}

void Entered::Spend(int64_t ns) const {
  std::lock_guard<std::mutex> lock(execution->mu_);
  if (!execution->closed_ && execution->Holds(step)) execution->overhead_ += ns;
}

void Execution::Begin(int64_t step, uint64_t number, const Orders* orders, bool target) {
  std::lock_guard<std::mutex> lock(mu_);
  step_.store(kNone, std::memory_order_relaxed);
  open_.store(false, std::memory_order_release);
  orders_.store(orders, std::memory_order_release);
  target_.store(target, std::memory_order_release);
  closed_ = false;
  number_ = number;
  overhead_ = 0;
  events_.clear();
  counts_.clear();
  outputs_.clear();
  step_.store(step, std::memory_order_release);
}

void Execution::Open(int64_t step) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!Holds(step)) return;  // more have begun than there are slots
  live_bytes_ = g_live_bytes.load(std::memory_order_relaxed);
  g_peak_bytes.store(live_bytes_, std::memory_order_relaxed);
  waited_ = g_waited_ns.load(std::memory_order_relaxed);
  start_ = NowNs();
  open_.store(true, std::memory_order_release);
}

std::function<std::string()> Execution::Close(int graph) {
  std::lock_guard<std::mutex> lock(mu_);
  if (closed_ || !open()) return {};
  closed_ = true;
  const Orders* orders = orders_;
  if (!target_ && !orders->discover) return {};
  auto events = std::make_shared<std::vector<Event>>();
  auto counts = std::make_shared<std::vector<Counts>>();
  auto outputs = std::make_shared<decltype(outputs_)>();
  events->swap(events_);
  events_.reserve(events->size() + 64);
  counts->swap(counts_);
  outputs->swap(outputs_);
  const int64_t peak = g_peak_bytes.load(std::memory_order_relaxed);
  return [=, number = number_, start = start_, overhead = overhead_, live = live_bytes_,
          waited = waited_, version = orders->version] {
    std::string out = "{\"type\":\"execution\",\"graph\":" + std::to_string(graph) +
                      ",\"number\":" + std::to_string(number) +
                      ",\"version\":" + std::to_string(version) +
                      ",\"start\":" + std::to_string(start) +
                      ",\"overhead\":" + std::to_string(overhead) +
                      ",\"live\":" + std::to_string(live) + ",\"peak\":" + std::to_string(peak) +
                      ",\"waited\":" + std::to_string(waited) + ",\"events\":[";
    for (size_t i = 0; i < events->size(); i++) {
      const Event& event = (*events)[i];
      if (i) out += ',';
      out += '[' + std::to_string(event.node) + ',' + std::to_string(event.key) + ',' +
             std::to_string(event.threads) + ',' + std::to_string(event.thread) + ',' +
             std::to_string(event.start - start) + ',' + std::to_string(event.end - start) +
             ",\"" + Hex(event.used) + "\"]";
    }
    out += ']';
    if (!counts->empty()) out += ",\"counts\":" + Json(*events, *counts);
    if (g_count_bytes) {
      out += ",\"levels\":[";
      for (size_t i = 0; i < events->size(); i++)
        out += (i ? "," : "") + std::to_string((*events)[i].live);
      out += ']';
    }
    if (!outputs->empty()) out += ",\"outputs\":" + Json(*outputs);
    return out + '}';
  };
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
  if (auto message = execution->Close(id)) Send(std::move(message));
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

Variant* AddVariant(Node* node, uint64_t shapes, const std::string& inputs) {
  const std::string text = node->type + "(" + inputs + ")" + node->attributes;
  std::lock_guard<std::mutex> lock(g_keys_mu);
  for (Variant* v = node->variants.load(); v; v = v->next)
    if (v->shapes == shapes) return v;
  Key*& key = g_keys[text];
  if (!key) {
    key = new Key;
    key->id = static_cast<int>(g_keys.size()) - 1;
    key->text = text;
    const Key* made = key;
    const std::string type = node->type;
    Send([made, inputs, type] {
      return "{\"type\":\"key\",\"id\":" + std::to_string(made->id) +
             ",\"key\":" + Quote(made->text) + ",\"op\":" + Quote(type) +
             ",\"inputs\":" + Quote(inputs) + "}";
    });
  }
  auto* variant = new Variant{shapes, key, node->variants.load()};
  node->variants.store(variant, std::memory_order_release);
  return variant;
}

void NoteOutputBytes(Key* key, int64_t bytes) {
  int64_t unknown = -1;
  if (!key->output_bytes.compare_exchange_strong(unknown, bytes)) return;
  const int id = key->id;
  Send([id, bytes] {
    return "{\"type\":\"output\",\"key\":" + std::to_string(id) +
           ",\"bytes\":" + std::to_string(bytes) + "}";
  });
}

void Report(const char* why) {
  if (InChild()) return;
  const std::string reason = why;
  Send([reason] {
    return "{\"type\":\"report\",\"why\":" + Quote(reason) +
           ",\"xla\":" + std::to_string(g_compiled_ns * 1e-9) +
           ",\"unmarked\":" + std::to_string(g_unmarked_ns * 1e-9) +
           ",\"admission\":" + AdmissionReport() + "}";
  });
}

void CloseAll() {
  if (InChild()) return;
  for (int id = 0; id < g_graph_count.load() && id < kMaxGraphs; id++)
    if (Graph* graph = FindGraph(id)) graph->CloseCurrent();
}

}  // namespace dltune
