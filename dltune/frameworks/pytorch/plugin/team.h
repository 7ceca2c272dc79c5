// The threads of an op: how many it gets, and what is counted in each of them while it runs.
#pragma once

#include <string>
#include <vector>

#include "../../../native/core/counters.h"

namespace dltune {

// How many threads an op gets: those of the OpenMP runtime and of MKL that PyTorch computes with, as
// the calling thread asks for them. `at::set_num_threads` does it too, but for all threads, and it
// empties a cache of oneDNN's.

// Finds, by their effect, what sets and tells the threads here; the runtime's file name, such as
// "libgomp.so.1". Empty: ops cannot be given threads of their own.
std::string FindRuntime();

// Whether threads that a smaller team leaves over live on. GNU's runtime ends them, unless that team is
// of one, and starts them anew for the next: a millisecond or two.
bool KeepsThreads();

// The job's own number of threads for an op of this thread, as they are now; they are what `SetWidth`
// comes back to.
int OwnWidth();
// What is in force now.
int Width();
// For the next ops of this thread.
void SetWidth(int threads);
// This thread and those that make up its number run it, each once; it alone where there is no runtime.
void OnEachThread(void (*run)(void* given), void* given = nullptr);
// As the script would set the job's own.
void SetOwnWidth(int threads);

// What is counted while an op runs, in each thread of its team: the one that steps, and those that the
// OpenMP runtime puts beside it. They open no counters themselves, for nothing of dltune's runs in them:
// the stepping thread does, and reads them.

// Of each thread of a team, the calling one last: to read another's takes long, and is none of the op.
// None where they cannot be read. `began`: when the first was, CLOCK_MONOTONIC ns.
struct Readings {
  int64_t began = 0;
  std::vector<Reading> threads;
};

// Teams may have other threads from now on.
void ForgetTeams();
// Nothing is counted any more.
void CloseTeams();
// Of the team of so many threads; the first time since it was forgotten, that must be the number in force.
Readings ReadTeam(CounterGroup* group, int width);
// By the same team; incomplete where some of it have ended meanwhile.
Counts CountedSince(const Readings& before, CounterGroup* group, int width);

}  // namespace dltune
