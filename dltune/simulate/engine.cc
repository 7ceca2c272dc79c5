// C interface of the simulator and of the scheduler, for ctypes.
#include <cstring>
#include <memory>

#include "admission.h"
#include "engine.h"
#include "fifo.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace dltune;
using namespace dltune::sim;

struct CWork {
  std::int32_t op, count;
  double serial;
  double seconds[1 + kCandidates];  // the choice first
  std::int32_t threads[1 + kCandidates];
  std::int32_t shared[1 + kCandidates];
  std::int32_t admitted, detached;
};

Candidate candidate(const CWork& w, int k) {
  return {w.threads[k], w.shared[k] ? Placement::shared : Placement::spread, w.seconds[k]};
}

Work work(const CWork& w) {
  Work out;
  out.op = w.op;
  out.serial = w.serial;
  out.choice = candidate(w, 0);
  out.count = std::min(w.count, kCandidates);
  for (int k = 0; k < out.count; ++k) out.candidates[k] = candidate(w, k + 1);
  return out;
}

Options options(bool corun, bool hyperthreads, double smt_throughput) {
  Options out;
  out.corun = corun;
  out.hyperthreads = hyperthreads;
  if (smt_throughput > 0) out.smt_throughput = smt_throughput;
  return out;
}

}  // namespace

// Each returns how many tasks ended; fewer than `tasks` means the graph has a cycle. `totals`
// takes the makespan and the mean number of ops in flight.
EXPORT int dltune_fifo(int tasks, const std::int32_t* offsets, const std::int32_t* edges,
                       const std::int32_t* op, const double* runs, const FifoOp* ops, int cores,
                       int inter, double overhead, double oversubscription, double crowding,
                       double* start, double* end, double* totals) {
  Fifo policy(op, runs, ops, cores, inter, overhead, oversubscription, crowding);
  Timeline timeline{start, end};
  run({tasks, offsets, edges}, policy, &timeline);
  totals[0] = timeline.makespan;
  totals[1] = timeline.corunning;
  return timeline.done;
}

// `held` (tasks x `words` 64-bit words, or null) takes each task's cores as a bit set, `second`
// whether it ran on a second hardware thread.
EXPORT int dltune_corun(int tasks, const std::int32_t* offsets, const std::int32_t* edges,
                        const std::int32_t* op, const double* runs, int ops, const CWork* table,
                        int cores, const std::int32_t* tile, const std::int32_t* hardware,
                        int inter, double overhead, double crowding, int corun, int hyperthreads,
                        double smt_throughput, double* start, double* end, double* totals,
                        std::uint64_t* held, int words, std::uint8_t* second) {
  std::vector<AdmissionOp> converted;
  converted.reserve(ops);
  for (int i = 0; i < ops; ++i) {
    converted.push_back({work(table[i]), table[i].admitted != 0, table[i].detached != 0});
    converted.back().work.op = -1;  // no interference is simulated, so none may be learnt
  }
  Admitted policy(op, runs, converted.data(), tile, hardware, cores, inter, overhead,
                  crowding, options(corun != 0, hyperthreads != 0, smt_throughput), tasks);
  Timeline timeline{start, end};
  run({tasks, offsets, edges}, policy, &timeline);
  totals[0] = timeline.makespan;
  totals[1] = timeline.corunning;
  if (held) {
    for (int t = 0; t < tasks; ++t) {
      for (int core : policy.places(t))
        held[static_cast<std::size_t>(t) * words + core / 64] |= std::uint64_t{1} << (core % 64);
      second[t] = policy.second(t);
    }
  }
  return timeline.done;
}

EXPORT Scheduler* dltune_scheduler_new(const std::int32_t* tile, const std::int32_t* hardware,
                                       int cores, int corun, int hyperthreads,
                                       double smt_throughput) {
  return new Scheduler(tile, hardware, cores,
                       options(corun != 0, hyperthreads != 0, smt_throughput));
}

EXPORT void dltune_scheduler_delete(Scheduler* scheduler) { delete scheduler; }

EXPORT void dltune_scheduler_avoid(Scheduler* scheduler, int a, int b) {
  scheduler->interference().avoid(a, b);
}

EXPORT int dltune_scheduler_avoided(const Scheduler* scheduler, int a, int b) {
  return const_cast<Scheduler*>(scheduler)->interference().avoided(a, b);
}

EXPORT void dltune_scheduler_ready(Scheduler* scheduler, std::uint64_t ticket,
                                   const CWork* about) {
  scheduler->ready(ticket, work(*about));
}

EXPORT void dltune_scheduler_finished(Scheduler* scheduler, std::uint64_t ticket, double now) {
  scheduler->finished(ticket, now);
}

// Takes up to `room` admissions: ticket, threads, seconds, whether on a second hardware thread,
// cores. Returns how many there are.
EXPORT int dltune_scheduler_decide(Scheduler* scheduler, double now, int room,
                                   std::uint64_t* ticket, std::int32_t* threads, double* seconds,
                                   std::uint8_t* second, std::uint64_t* held, int words) {
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
