// The graphs that run, their executions, and what was seen in each: which op, when, on which cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orders.h"

namespace dltune {

struct Graph;

// An op key: op type, input dtypes and shapes, the attributes that change the work.
struct Key {
  int id;
  std::string text;
  std::atomic<int64_t> output_bytes{-1};
  // Under the snapshot last asked for; looked up once per snapshot.
  std::atomic<const OpOrder*> order{nullptr};
};

// A node with one set of input shapes.
struct Variant {
  uint64_t shapes;
  Key* key;
  Variant* next;
};

struct Node {
  Graph* graph;
  int index;
  std::string name, type, attributes;
  std::string identity;  // among all graphs: "@SIGNATURE/NAME", which no key begins like
  bool waits = false;  // may wait for another kernel, or is asynchronous: never held up
  bool cluster = false;  // one kernel that XLA makes of many ops
  std::atomic<bool> outputs_known{false};
  std::atomic<Variant*> variants{nullptr};
  std::atomic<const OpOrder*> order{nullptr};  // as `Key::order`, where orders name nodes
};

// What a node gave out at one of its slots. `alias`: the input whose memory it is; -1: its own.
struct Output {
  std::string dtype;
  int64_t bytes;
  int alias;
};

struct Event {
  int node;
  int key;
  int threads;  // 0: the framework's own pool
  int thread;   // executor thread, numbered from 0
  int64_t start, end;  // CLOCK_MONOTONIC ns
  int64_t live;        // bytes of the allocator at its end
  int64_t scratch;     // bytes that it took and gave back
  uint64_t used[kMaxSlots / 64];
  int counts = -1;  // index in the execution's counts; -1: not counted
};

// While this process and others summed something up together; times as in Event.
struct Collective {
  int64_t start, end;
};

// What is sent of an execution; fields as in messages.Execution.
struct ExecutionRecord {
  int graph = 0;
  uint64_t number = 0;
  int64_t version = 0, start = 0, overhead = 0, live = 0, peak = 0, waited = 0;
  std::vector<Event> events;
  std::vector<Counts> counts;
  std::vector<std::pair<int, std::vector<Output>>> outputs;  // by node
  std::vector<Collective> collectives;
};
std::string MessageOf(const ExecutionRecord& record);

class Execution;

// What an op knows of the execution that it belongs to. The slot of an execution is used again, so
// it may be another's by the time the op ends.
struct Entered {
  Execution* execution = nullptr;
  int64_t step = -1;
  const Orders* orders = nullptr;
  bool target = false;

  bool records() const { return orders->discover || (target && orders->events); }
  bool steers() const { return target && orders->steers(); }
  // Both do nothing once the execution has been closed. `ns`: in dltune's own code.
  void Add(Event event, const Counts* counted = nullptr) const;
  void AddOutputs(Node* node, std::vector<Output> outputs) const;  // once for each node
  void Spend(int64_t ns) const;

 private:
  bool Stands() const;  // the execution is still the one that was entered; with its lock held
};

// One run of a graph, all its kernels that share a step id, in a slot that later runs use again.
class Execution {
 public:
  bool Holds(int64_t step) const { return step_.load(std::memory_order_acquire) == step; }
  bool open() const { return open_.load(std::memory_order_acquire); }

  // Fills `entered` if this is the open execution of `step`. Without a lock: whoever takes the slot
  // withdraws the step id before it writes anything else, so fields read together with that id
  // before and after belong to it.
  bool Enter(int64_t step, Entered* entered) {
    if (!Holds(step) || !open()) return false;
    *entered = {this, step, orders_.load(std::memory_order_acquire),
                target_.load(std::memory_order_acquire)};
    return step_.load(std::memory_order_relaxed) == step;
  }

  // Takes the slot for a new execution, which is not open yet.
  void Begin(int64_t step, uint64_t number, const Orders* orders, bool target);
  // Past the barrier: its time runs, and it may be entered.
  void Open(int64_t step);
  // The message that tells of it, if something of it was recorded; nothing more will be. Empty the
  // second time.
  std::function<std::string()> Close(int graph);

 private:
  friend struct Entered;

  static constexpr int64_t kNone = INT64_MIN;  // a step may have any other number

  std::atomic<int64_t> step_{kNone};
  std::atomic<const Orders*> orders_{nullptr};
  std::atomic<bool> target_{false}, open_{false};
  std::mutex mu_;  // guards what follows, and all writing
  bool closed_ = true;
  ExecutionRecord record_;
};

struct Graph {
  int id;
  std::string signature;
  std::vector<std::unique_ptr<Node>> nodes;

  // The execution with this step id; a new one closes and sends the one before.
  Entered Enter(int64_t step) {
    Execution* now = current.load(std::memory_order_acquire);
    Entered entered;
    if (now && now->Enter(step, &entered)) return entered;
    return EnterSlow(step);
  }
  void CloseCurrent();
  // How many executions have begun.
  uint64_t runs() const { return executions.load(std::memory_order_relaxed); }

 private:
  Entered EnterSlow(int64_t step);
  void Close(Execution* execution);

  // Executions that overlap keep their slots, unless there are more.
  static constexpr int kSlots = 16;
  std::atomic<Execution*> current{nullptr};
  std::mutex mu;
  Execution slots[kSlots];
  std::atomic<uint64_t> executions{0};
};

// Graphs by id; ids are given out by AddGraph and never reused.
Graph* AddGraph(std::unique_ptr<Graph> graph);
Graph* FindGraph(int id);

// The key of a node's type and attributes with these inputs.
Key* AddKey(const Node& node, const std::string& inputs);
Variant* AddVariant(Node* node, uint64_t shapes, const std::string& inputs);

// The node's variant for these input shapes; `describe` makes the key's text when it is new.
template <typename Describe>
Variant* FindVariant(Node* node, uint64_t shapes, const Describe& describe) {
  for (Variant* v = node->variants.load(std::memory_order_acquire); v; v = v->next)
    if (v->shapes == shapes) return v;
  return AddVariant(node, shapes, describe());
}

// The order for this text, remembered in `known` until another snapshot is asked for.
inline const OpOrder& Ordered(std::atomic<const OpOrder*>* known, const std::string& text,
                              const Orders* orders) {
  const OpOrder* order = known->load(std::memory_order_acquire);
  if (order && order->of == orders) return *order;
  order = orders->Find(text);
  known->store(order, std::memory_order_release);
  return *order;
}

// A node that orders name obeys them, any other those for its key.
inline const OpOrder& OrderFor(Node* node, Key* key, const Orders* orders) {
  if (orders->names_nodes) {
    const OpOrder& own = Ordered(&node->order, node->identity, orders);
    if (&own != &orders->fallback) return own;
  }
  return Ordered(&key->order, key->text, orders);
}

void NoteOutputBytes(Key* key, int64_t bytes);

// The step barrier: lets `count` more executions of target graphs begin, which wait there.
void Grant(int64_t count);
void WaitAtBarrier();

// Live bytes of the CPU allocator and the most since the last call; set by the device.
extern std::atomic<int64_t> g_live_bytes, g_peak_bytes;

// Time that the process has spent in compiled clusters, in ops outside captured graphs, and of both
// in those that wait for input.
extern std::atomic<int64_t> g_compiled_ns, g_unmarked_ns, g_waited_ns;
// Steps that have ended, of a framework whose steps do; others have graphs that run.
extern std::atomic<int64_t> g_steps;

// A cluster has run for so long. XLA compiles it anew for each set of input shapes: what runs first
// with a hash of `inputs` and cluster is told as a compilation.
void NoteCluster(uint64_t inputs, int64_t ns);

// Sends what the process has spent outside captured graphs so far, and what was admitted.
void Report(const char* why);

// Closes and sends every graph's current execution, at the end of the process.
void CloseAll();

}  // namespace dltune
