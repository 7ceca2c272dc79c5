// Processes that the job forks. A forked child has none of dltune's threads, and locks that they held
// stay locked in it: there dltune does nothing and takes no lock.
#pragma once

#include <pthread.h>

#include <atomic>

namespace dltune {

inline std::atomic<bool> g_in_child{false};
inline const int g_child_noticed = pthread_atfork(nullptr, nullptr, [] { g_in_child = true; });

// Whether this process was forked from one that had loaded dltune.
inline bool InChild() { return g_in_child.load(std::memory_order_relaxed); }

}  // namespace dltune
