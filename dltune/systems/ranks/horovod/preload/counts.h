// What a background thread did, written to one file when it ends.
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

namespace dltune {

struct Counts {
  long cycles = 0, collectives = 0, tests = 0, sleeps = 0, agreements = 0, shortened = 0, rests = 0;
  double slept = 0, saved = 0, rested = 0;
};

// Seconds that this thread could have run but waited for a core; negative when not known.
inline double run_queue_wait() {
  FILE* file = fopen("/proc/thread-self/schedstat", "re");
  unsigned long long waited;
  const bool known = file && fscanf(file, "%*u %llu", &waited) == 1;
  if (file) fclose(file);
  return known ? 1e-9 * waited : -1;
}

// The file appears whole or not at all.
inline void write_counts(const char* folder, int rank, int size, const Counts& n, double elapsed,
                         double cpu, double waited) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  char path[PATH_MAX], part[PATH_MAX];
  snprintf(path, sizeof path, "%s/sleeps-%s-%ld.json", folder, host,
           static_cast<long>(syscall(SYS_gettid)));
  if (snprintf(part, sizeof part, "%s.part", path) >= static_cast<int>(sizeof part)) return;
  FILE* file = fopen(part, "we");
  if (!file) {
    fprintf(stderr, "dltune: cannot write %s: %s\n", path, strerror(errno));
    return;
  }
  // a point in numbers, whatever the job's locale says
  const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr), before = uselocale(plain);
  char wait[32] = "null";
  if (waited >= 0) snprintf(wait, sizeof wait, "%.6f", waited);
  fprintf(file,
          "{\"rank\":%d,\"size\":%d,\"pid\":%d,\"tid\":%ld,\"seconds\":%.6f,\"cpu\":%.6f,"
          "\"wait\":%s,\"cycles\":%ld,\"collectives\":%ld,\"tests\":%ld,\"sleeps\":%ld,"
          "\"slept\":%.6f,\"agreements\":%ld,\"shortened\":%ld,\"saved\":%.6f,"
          "\"rests\":%ld,\"rested\":%.6f}\n",
          rank, size, getpid(), static_cast<long>(syscall(SYS_gettid)), elapsed, cpu, wait,
          n.cycles, n.collectives, n.tests, n.sleeps, n.slept, n.agreements, n.shortened, n.saved,
          n.rests, n.rested);
  uselocale(before);
  freelocale(plain);
  if (fclose(file) == 0) rename(part, path);
}

}  // namespace dltune
