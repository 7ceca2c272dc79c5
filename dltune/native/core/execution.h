// The graphs that run, their executions, and what was seen in each: which op, when, on which cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "orders.h"

namespace dltune {

struct Graph;

// An op key: op type, input dtypes and shapes, the attributes that change the work.
struct Key {
  int id;
  std::string text;
  int64_t output_bytes = -1;
  // The order for this key under the snapshot last asked for; looked up once per snapshot.
  std::atomic<const Orders*> orders{nullptr};
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
  bool waits = false;  // may wait for another kernel, or is asynchronous: never held up
  std::atomic<Variant*> variants{nullptr};
};

struct Event {
  int node;
  int key;
  int threads;  // 0: TensorFlow's own pool
  int thread;   // executor thread, numbered from 0
  int64_t start, end;  // CLOCK_MONOTONIC ns
  uint64_t used[kMaxSlots / 64];
  int counts = -1;  // index in the execution's counts; -1: not counted
};

// One run of a graph: all its kernels that share a step id.
struct Execution {
  Graph* graph = nullptr;
  std::atomic<int64_t> step{-1};
  std::atomic<bool> open{false};  // past the turnstile
  const Orders* orders = nullptr;
  bool target = false;
  uint64_t number = 0;
  int64_t start = 0;
  int64_t live_bytes = 0;
  std::atomic<int64_t> overhead{0};  // ns in dltune's own code, where ops are recorded
  std::mutex mu;
  bool closed = false;
  std::vector<Event> events;
  std::vector<Counts> counts;
  int64_t waited = 0;  // g_waited_ns at its start

  bool records() const { return orders->discover || (target && orders->events); }
  void Add(Event event, const Counts* counted = nullptr) {
    std::lock_guard<std::mutex> lock(mu);
    if (closed) return;
    if (counted && counted->complete) {
      event.counts = static_cast<int>(counts.size());
      counts.push_back(*counted);
    }
    events.push_back(event);
  }
};

struct Graph {
  int id;
  std::string signature;
  std::vector<std::unique_ptr<Node>> nodes;

  // The execution with this step id; a new one closes and sends the one before.
  Execution* Enter(int64_t step) {
    Execution* now = current.load(std::memory_order_acquire);
    if (now && now->step.load(std::memory_order_relaxed) == step &&
        now->open.load(std::memory_order_acquire))
      return now;
    return EnterSlow(step);
  }
  void CloseCurrent();

 private:
  Execution* EnterSlow(int64_t step);
  void Close(Execution* execution);

  // A thread may still hold an execution that has been closed, so slots are reused late.
  static constexpr int kSlots = 16;
  std::atomic<Execution*> current{nullptr};
  std::mutex mu;
  Execution slots[kSlots];
  uint64_t executions = 0;
};

// Graphs by id; ids are given out by AddGraph and never reused.
Graph* AddGraph(std::unique_ptr<Graph> graph);
Graph* FindGraph(int id);

// The node's variant for these input shapes; `describe` makes the key's text when it is new.
template <typename Describe>
Variant* FindVariant(Node* node, uint64_t shapes, const Describe& describe);
Variant* AddVariant(Node* node, uint64_t shapes, const std::string& inputs);
template <typename Describe>
Variant* FindVariant(Node* node, uint64_t shapes, const Describe& describe) {
  for (Variant* v = node->variants.load(std::memory_order_acquire); v; v = v->next)
    if (v->shapes == shapes) return v;
  return AddVariant(node, shapes, describe());
}

inline const OpOrder* OrderFor(Key* key, const Orders* orders) {
  if (key->orders.load(std::memory_order_acquire) == orders)
    return key->order.load(std::memory_order_relaxed);
  const OpOrder* found = orders->Find(key->text);
  key->order.store(found, std::memory_order_relaxed);
  key->orders.store(orders, std::memory_order_release);
  return found;
}

void NoteOutputBytes(Key* key, int64_t bytes);

// The turnstile: lets `count` more executions of target graphs begin.
void Grant(int64_t count);

// Live bytes of the CPU allocator and the most since the last call; set by the device.
extern std::atomic<int64_t> g_live_bytes, g_peak_bytes;

// Time that the process has spent in compiled clusters, in ops outside captured graphs, and of both
// in those that wait for input.
extern std::atomic<int64_t> g_compiled_ns, g_unmarked_ns, g_waited_ns;

// Sends what the process has spent outside captured graphs so far, and what was admitted.
void Report(const char* why);

// Closes and sends every graph's current execution, at the end of the process.
void CloseAll();

}  // namespace dltune
