// Denormal numbers in the job's Python: the CPU keeps a flag, for each thread, that an operand was one.
#pragma once

#include <atomic>

namespace dltune {

// How often the main thread was looked at, and how often it had computed with denormal numbers since
// the look before. Both stay 0 where the CPU has no such flag, or the process no Python.
extern std::atomic<int> g_denormal_looks, g_denormal;

// Asks the main thread to look, between two of its lines of Python.
void LookForDenormals();

}  // namespace dltune
