// Performance counters around ops: groups of perf events of single threads, opened when an op first
// runs under them. The kernel counts a group's events together or not at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace dltune {

constexpr int kMaxCounters = 16;  // of one group; no PMU counts more at once

struct CounterEvent {
  uint32_t type;
  uint64_t config, config1, config2;
  bool exclude_kernel;
  bool operator==(const CounterEvent& o) const {
    return type == o.type && config == o.config && config1 == o.config1 &&
           config2 == o.config2 && exclude_kernel == o.exclude_kernel;
  }
};

// What a group counted over some time, in one or several threads. `running` is the least share of
// its time in which it was on the counters; values are scaled up by it.
struct Counts {
  int n = 0;
  double value[kMaxCounters] = {};
  double running = 1;
  bool complete = true;  // false: some thread could not count
  void Add(const Counts& other);
};

// Equal groups are one object, never destroyed.
struct CounterGroup {
  std::vector<CounterEvent> events;
  std::atomic<bool> refused{false};
  mutable std::mutex mu;
  Counts in_ops;  // since the start, over all ops; guarded by mu
};
CounterGroup* FindCounterGroup(const std::vector<CounterEvent>& events);

// A thread's counters at one moment.
struct Reading {
  bool valid = false;
  uint64_t enabled, running, value[kMaxCounters];
};

// The counters of one thread of this process, which any of its threads may read, one at a time.
class ThreadCounters {
 public:
  explicit ThreadCounters(int thread);
  ThreadCounters(const ThreadCounters&) = delete;
  ~ThreadCounters();

  // Of all groups only the one that was read last counts.
  Reading Read(CounterGroup* group);
  // Open files, those of a group left out.
  size_t FilesBeside(CounterGroup* group) const;

 private:
  // A group's descriptors, the leader first; none where the kernel refused.
  using Handles = std::vector<int>;

  const Handles& Switch(CounterGroup* group);
  void Command(unsigned long command);
  Handles OpenAll(CounterGroup* group);

  const int thread_;
  std::map<CounterGroup*, Handles> opened_;
  std::pair<CounterGroup* const, Handles>* current_ = nullptr;  // in `opened_`
};

Reading ReadCounters(CounterGroup* group);  // of the calling thread
Counts Between(const CounterGroup& group, const Reading& before, const Reading& after);

// Sends what every thread, and the process, has used since its start, and what of it was in ops.
void SendTotals();

}  // namespace dltune
