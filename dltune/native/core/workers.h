// Intra-op thread pools as views over fixed, pinned workers: one worker per core, and a view per
// (thread count, core set). A framework's adapter hands a view to kernels as their thread pool.
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "counters.h"

namespace dltune {

inline int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

class View;

// One thread pinned to one logical CPU, which runs the tasks of the views that it is attached to.
class Worker {
 public:
  explicit Worker(int cpu, int name);
  void Attach(View* view, int index);

 private:
  struct Token {
    View* view;
    int index;
  };
  void Run();

  const int cpu_;
  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Token> tokens_;
  std::atomic<int> waiting_{0};  // tokens not yet taken; read while spinning
  bool asleep_ = false;
};

// The cores of the process: their CPUs and workers. Set once, before the first view.
class Cores {
 public:
  // cpus[i] are the hardware threads of core i; worker i runs on the first, worker count+i on the
  // second where there is one (strategy 4).
  void Set(std::vector<std::vector<int>> cpus);
  int count() const { return static_cast<int>(cpus_.size()); }
  const std::vector<std::vector<int>>& cpus() const { return cpus_; }
  Worker* worker(int slot);             // a slot is a core, or count + core for its second thread
  int cpu(int slot) const;
  int SlotOfCpu(int cpu) const { return cpu < static_cast<int>(slots_.size()) ? slots_[cpu] : -1; }

 private:
  std::vector<std::vector<int>> cpus_;
  std::vector<int> slots_;  // logical CPU -> slot, -1 when not ours
  std::mutex mu_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by slot, started at first use
};
Cores& TheCores();

constexpr int kMaxSlots = 1024;  // what a record of used cores can hold

// `threads` parts of work on the workers of `slots`. Tasks wait in one queue that all attached
// workers drain, so none waits while a core of the view is idle.
class View {
 public:
  View(int threads, std::vector<int> slots);

  void Schedule(std::function<void()> task);
  int threads() const { return threads_; }
  // Index of the calling worker among this view's, -1 for any other thread. Frameworks hand out
  // per-worker buffers by it, so two workers must never share one.
  int CurrentWorker() const;

  const std::vector<int>& slots() const { return slots_; }
  const cpu_set_t& mask() const { return mask_; }
  bool covers_all() const { return covers_all_; }

  // Runs tasks until none is left, then detaches. Called by workers only.
  void Drain(int index);

  // Which slots ran tasks since the last Take: a bit each.
  void Mark(int slot) { used_[slot >> 6].fetch_or(1ull << (slot & 63), std::memory_order_relaxed); }
  int TakeUsed(uint64_t used[kMaxSlots / 64]);

  // From now on workers count what they do for this view (null: no longer).
  void Count(CounterGroup* group);
  // What they counted since `Count`, once all have let go of the view. Some task of the op may
  // outlive it; who waited too long gets incomplete counts.
  Counts TakeCounts();

 private:
  const int threads_;
  const std::vector<int> slots_;
  std::vector<Worker*> workers_;  // by slot, since the first task there: PyTorch's ops never give any
  cpu_set_t mask_;
  bool covers_all_;
  std::mutex mu_;
  std::deque<std::function<void()>> tasks_;
  std::vector<uint8_t> attached_;
  size_t attached_count_ = 0;
  size_t next_ = 0;
  std::atomic<uint64_t> used_[kMaxSlots / 64] = {};
  std::atomic<CounterGroup*> group_{nullptr};
  Counts counts_;  // guarded by mu_
};

// The view of these threads and slots; made at first use and kept.
View* FindView(int threads, const std::vector<int>& slots);

// Lets the calling thread stand only on the view's cores while it runs an op. Changes the thread's
// affinity only when it differs from the last one set: a call costs about a microsecond.
class Stand {
 public:
  explicit Stand(const View& view);
  ~Stand();

 private:
  bool restore_ = false;
};

// The calling thread runs what is not steered: where it was left on some cores it gets all again.
void LeaveStand();

}  // namespace dltune
