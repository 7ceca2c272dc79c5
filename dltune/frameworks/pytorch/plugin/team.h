// The threads of an op: their number, and the events counted in each of them while the op runs.
#pragma once

#include <string>
#include <vector>

#include "../../../native/core/counters.h"

namespace dltune {

// Number of threads for an op, in the OpenMP runtime and in MKL, as PyTorch requests it from the calling
// thread. `at::set_num_threads` sets it for all threads, and empties a cache of oneDNN.

// Finds the functions that set and return the number of threads, by testing their effect. Returns the
// runtime's file name, such as "libgomp.so.1"; empty if ops cannot have numbers of their own.
std::string FindRuntime();

// Whether threads that a smaller team does not need stay alive. GNU's runtime ends them, unless that team
// has one thread, and starts new ones for the next team, which takes a millisecond or two.
bool KeepsThreads();

// Returns the job's own number of threads for an op of this thread, and stores it: `SetWidth` restores it.
int OwnWidth();
// The number now in force.
int Width();
// Sets the number for the next ops of this thread.
void SetWidth(int threads);
// Runs `run` once in this thread and in each other thread of its team; only in this thread if there is no
// runtime.
void OnEachThread(void (*run)(void* given), void* given = nullptr);
// Sets the job's own number, as the script would.
void SetOwnWidth(int threads);

// Events counted while an op runs, in each thread of its team: the thread that runs the step, and those
// that the OpenMP runtime adds. No code of dltune runs in the added threads, so the thread that runs the
// step opens and reads their counters.

// Readings of each thread of a team, the calling thread last: reading another thread's counters takes
// long, and is not part of the op. Empty if they cannot be read. `began`: time of the first reading,
// CLOCK_MONOTONIC ns.
struct Readings {
  int64_t began = 0;
  std::vector<Reading> threads;
};

// Forgets which threads a team has, since they can change.
void ForgetTeams();
// Ends all counting.
void CloseTeams();
// Reads the team of `width` threads. The first time after `ForgetTeams`, `width` must be in force.
Readings ReadTeam(CounterGroup* group, int width);
// Counts of the same team since `before`; incomplete if some of its threads have ended meanwhile.
Counts CountedSince(const Readings& before, CounterGroup* group, int width);

}  // namespace dltune
