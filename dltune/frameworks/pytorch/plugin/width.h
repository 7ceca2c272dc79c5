// How many threads an op gets: those of the OpenMP runtime and of MKL that PyTorch computes with, as
// the calling thread asks for them. `at::set_num_threads` does it too, but for all threads, and it
// empties a cache of oneDNN's.
#pragma once

#include <string>

namespace dltune {

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

}  // namespace dltune
