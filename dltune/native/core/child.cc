#include "child.h"

#include <pthread.h>

#include <atomic>

namespace dltune {
namespace {

std::atomic<bool> g_in_child{false};
const int g_registered = pthread_atfork(nullptr, nullptr, [] { g_in_child = true; });

}  // namespace

bool InChild() { return g_in_child.load(std::memory_order_relaxed); }

}  // namespace dltune
