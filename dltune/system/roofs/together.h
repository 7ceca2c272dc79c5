// The same work on several cores at once: a pinned thread on each, all let go at one moment.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace dltune {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline bool stand_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}

// `prepare(i)` on each core, then `work(i)` on all at once: nanoseconds from when the first begins
// until the last has ended; -1 when a thread may not stand on its CPU.
template <typename Prepare, typename Work>
int64_t together(const int32_t* cpus, int count, Prepare prepare, Work work) {
  std::atomic<int> waiting{count};
  std::atomic<bool> refused{false};
  std::vector<int64_t> begins(count), ends(count);
  auto one = [&](int i) {
    if (!stand_on(cpus[i])) refused = true;
    prepare(i);
    --waiting;
    // a core with other work: who waits must not keep the others from it
    for (int looks = 0; waiting > 0; ++looks) {
      if (looks > 10000) std::this_thread::yield();
    }
    begins[i] = now_ns();
    work(i);
    ends[i] = now_ns();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(one, i);
  for (auto& thread : threads) thread.join();
  if (refused) return -1;
  return *std::max_element(ends.begin(), ends.end()) -
         *std::min_element(begins.begin(), begins.end());
}

}  // namespace dltune
