#include "execution.h"

#include <algorithm>

#include "admission.h"
#include "channel.h"

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

std::mutex g_turnstile_mu;
auto& g_turnstile = *new std::condition_variable;
int64_t g_grants = 0;

void PassTurnstile() {
  std::unique_lock<std::mutex> lock(g_turnstile_mu);
  if (g_grants == 0) {
    const int64_t now = NowNs();
    Send([now] { return "{\"type\":\"waiting\",\"at\":" + std::to_string(now) + "}"; });
    g_turnstile.wait(lock, [] { return g_grants > 0; });
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
  char number[32];
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

}  // namespace

void Grant(int64_t count) {
  {
    std::lock_guard<std::mutex> lock(g_turnstile_mu);
    g_grants += count;
  }
  g_turnstile.notify_all();
}

Execution* Graph::EnterSlow(int64_t step) {
  Execution* mine = nullptr;
  bool made = false;
  {
    std::lock_guard<std::mutex> lock(mu);
    for (auto& slot : slots)
      if (slot.graph && slot.step == step) mine = &slot;
    if (!mine) {
      if (Execution* before = current.load()) Close(before);
      mine = &slots[executions % kSlots];
      mine->graph = this;
      mine->open = false;
      mine->orders = OrdersFor(executions);
      const auto& targets = mine->orders->targets;
      mine->target = std::find(targets.begin(), targets.end(), signature) != targets.end();
      mine->number = executions++;
      {
        std::lock_guard<std::mutex> events_lock(mine->mu);
        mine->closed = false;
        mine->events.clear();
        mine->counts.clear();
      }
      mine->step = step;
      current.store(mine, std::memory_order_release);
      made = true;
    }
  }
  if (made) {
    if (mine->target && mine->orders->turnstile) PassTurnstile();
    mine->live_bytes = g_live_bytes.load(std::memory_order_relaxed);
    g_peak_bytes.store(mine->live_bytes, std::memory_order_relaxed);
    mine->overhead = 0;
    mine->waited = g_waited_ns.load(std::memory_order_relaxed);
    mine->start = NowNs();
    std::lock_guard<std::mutex> lock(g_turnstile_mu);
    mine->open.store(true, std::memory_order_release);
  } else if (!mine->open.load(std::memory_order_acquire)) {
    std::unique_lock<std::mutex> lock(g_turnstile_mu);
    g_turnstile.wait(lock, [mine, step] { return mine->open.load() || mine->step != step; });
    return mine;
  }
  g_turnstile.notify_all();
  return mine;
}

void Graph::Close(Execution* e) {
  if (!e->target && !e->orders->discover) return;
  auto events = std::make_shared<std::vector<Event>>();
  auto counts = std::make_shared<std::vector<Counts>>();
  {
    std::lock_guard<std::mutex> lock(e->mu);
    if (e->closed || !e->open) return;
    e->closed = true;
    events->swap(e->events);
    e->events.reserve(events->size() + 64);
    counts->swap(e->counts);
  }
  const int64_t start = e->start, live = e->live_bytes, version = e->orders->version;
  const int64_t peak = g_peak_bytes.load(std::memory_order_relaxed);
  const uint64_t number = e->number;
  const int64_t overhead = e->overhead.load(std::memory_order_relaxed);
  const int64_t waited = e->waited;
  const int graph = id;
  Send([=] {
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
    return out + '}';
  });
}

void Graph::CloseCurrent() {
  std::lock_guard<std::mutex> lock(mu);
  if (Execution* now = current.load()) Close(now);
}

Graph* AddGraph(std::unique_ptr<Graph> graph) {
  const int id = g_graph_count.fetch_add(1);
  if (id >= kMaxGraphs) return nullptr;
  graph->id = id;
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
  if (key->output_bytes >= 0) return;
  key->output_bytes = bytes;
  const int id = key->id;
  Send([id, bytes] {
    return "{\"type\":\"output\",\"key\":" + std::to_string(id) +
           ",\"bytes\":" + std::to_string(bytes) + "}";
  });
}

void Report(const char* why) {
  const std::string reason = why;
  Send([reason] {
    return "{\"type\":\"report\",\"why\":" + Quote(reason) +
           ",\"xla\":" + std::to_string(g_compiled_ns * 1e-9) +
           ",\"unmarked\":" + std::to_string(g_unmarked_ns * 1e-9) +
           ",\"gate\":" + AdmissionReport() + "}";
  });
}

void CloseAll() {
  for (int id = 0; id < g_graph_count.load() && id < kMaxGraphs; id++)
    if (Graph* graph = FindGraph(id)) graph->CloseCurrent();
}

}  // namespace dltune
