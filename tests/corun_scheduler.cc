// Strategies 3 and 4 (corun.h) call by call, for ctypes.
#include "../dltune/native/corun.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace dltune;

EXPORT Scheduler* scheduler_new(const int* tile, const int* hardware, int cores,
                                double smt_throughput, int corun, int hyperthreads) {
  Options options;
  options.corun = corun != 0;
  options.hyperthreads = hyperthreads != 0;
  if (smt_throughput > 0) options.smt_throughput = smt_throughput;
  return new Scheduler(tile, hardware, cores, options);
}

EXPORT void scheduler_delete(Scheduler* scheduler) { delete scheduler; }

EXPORT void scheduler_avoid(Scheduler* scheduler, int a, int b) {
  scheduler->interference().avoid(a, b);
}

EXPORT int scheduler_avoided(Scheduler* scheduler, int a, int b) {
  return scheduler->interference().avoided(a, b);
}

// Of the ways to run it the first is strategy 2's choice.
EXPORT void scheduler_ready(Scheduler* scheduler, std::uint64_t ticket, int op, double serial,
                            int ways, const int* threads, const int* shared,
                            const double* seconds) {
  Work work;
  work.op = op;
  work.serial = serial;
  work.count = std::min(ways - 1, kCandidates);
  for (int k = 0; k <= work.count; ++k) {
    Candidate& way = k ? work.candidates[k - 1] : work.choice;
    way = {threads[k], shared[k] ? Placement::shared : Placement::spread, seconds[k]};
  }
  scheduler->ready(ticket, work);
}

EXPORT void scheduler_finished(Scheduler* scheduler, std::uint64_t ticket, double now) {
  scheduler->finished(ticket, now);
}

// Takes up to `room` admissions: ticket, threads, seconds, whether on a second hardware thread,
// cores. Returns how many there are.
EXPORT int scheduler_decide(Scheduler* scheduler, double now, int room, std::uint64_t* ticket,
                            int* threads, double* seconds, std::uint8_t* second,
                            std::uint64_t* held, int words) {
  std::vector<Admission> admissions;
  scheduler->decide(now, &admissions);
  const int n = std::min(room, static_cast<int>(admissions.size()));
  for (int i = 0; i < n; ++i) {
    const Admission& a = admissions[i];
    ticket[i] = a.ticket;
    threads[i] = a.threads;
    seconds[i] = a.seconds;
    second[i] = a.second;
    a.cores.each([&](int core) {
      held[static_cast<std::size_t>(i) * words + core / 64] |= std::uint64_t{1} << (core % 64);
    });
  }
  return static_cast<int>(admissions.size());
}
