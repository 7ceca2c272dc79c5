// Time, and sleeps that are as long as they were asked to be.
#pragma once

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace dltune {

inline double seconds(const timespec& t) { return t.tv_sec + 1e-9 * t.tv_nsec; }

inline double now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  clock_gettime(clock, &t);
  return seconds(t);
}

inline timespec span(double seconds) {
  timespec t{static_cast<time_t>(seconds), 0};
  t.tv_nsec = static_cast<long>(1e9 * (seconds - t.tv_sec));
  return t;
}

// The kernel's own call: ours must not come back to our nanosleep. Ends early on a signal.
inline void sleep_for(double time) {
  const timespec t = span(time);
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, nullptr);
}

// By default the kernel may add 50 us to a thread's sleeps, more than the sleeps themselves.
inline void sleep_precisely() { prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); }

}  // namespace dltune
