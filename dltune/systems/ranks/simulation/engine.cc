// The background threads of all ranks, a cycle at a time.
//
// Within a cycle ranks depend on each other only through the cores of their pool, so each pool is
// followed on its own, event by event, until all of its background threads have come to where they
// wait for the others; then the cycle is agreed on and its transfers are placed. A thread's draws
// of chance are numbered, so that neither the order of pools nor that of ranks changes them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "../../../native/mirrored.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Same order as outcome.py's DOINGS.
enum Doing : std::int32_t { kSleep, kOversleep, kWait, kTransfer, kCompute, kInput };

struct Slice {
  std::int32_t rank, doing;
  double start, end;
};

struct Quantiles {
  std::int32_t points;
  const double* share;
  const double* value;

  double at(double u) const {
    int i = 1;
    while (i + 1 < points && share[i] <= u) ++i;
    return value[i - 1] + (u - share[i - 1]) / (share[i] - share[i - 1]) * (value[i] - value[i - 1]);
  }
};

struct Job {
  std::int32_t ranks, pool_ranks;
  double cores;
  std::int32_t tensors, phases;
  const double* bytes;          // per tensor
  const double* seconds;        // per phase
  const double* threads;        // per phase
  const std::int32_t* ready;    // per tensor: the phase at whose end it becomes ready
  std::int32_t updates;
  const double* update_seconds;           // per update
  const double* update_threads;           // per update
  const std::int32_t* update_begin;       // per update, and one more: where its tensors begin
  const std::int32_t* update_tensors;     // that it waits for
  double start, per_byte, copy_per_byte;  // of a transfer
  double few_bytes;             // seconds of a small allreduce, as of sleeps and requests
  double sync;                  // seconds of the caches' allreduce
  double cycle_time, fusion_threshold, cycle_seconds, request, test;
  std::int32_t cache;           // 0: none, 1: too small for all tensors, 2: holds them
  Quantiles wake, wake_busy, answer, answer_busy, jitter;
  double input_seconds, input_threads;
  double synchronizing, transferring;
  std::int32_t answers, offloaded;
};

struct Method {
  std::int32_t agree_every;     // 0: never
  double between_tests;         // 0: no tests
  double reserved, input_cores;
  std::int32_t bins;            // 0: none
  const std::int32_t* bin;      // per tensor
  std::int32_t synchronized;
  double rest;                  // 0: none
};

struct Totals {
  double compute, slowest, transfer, background, oversleep, worst_oversleep;
  std::int64_t cycles, empty, batches, sleeps;
};

// SplitMix64's mixing function (Steele, Lea and Flood, OOPSLA 2014).
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class Simulation {
 public:
  Simulation(const Job& job, const Method& method, int steps, int warmup, std::uint64_t seed,
             int drawn)
      : job_(job), method_(method), last_step_(steps + warmup), warmup_(warmup), shown_(drawn),
        compute_cores_(job.cores - method.reserved - method.input_cores), ranks_(job.ranks),
        pools_(job.ranks / job.pool_ranks), bin_bytes_(method.bins), bin_phase_(method.bins),
        in_phase_(job.phases + 1), members_(method.bins), updates_of_(job.tensors),
        last_phase_(*std::max_element(job.ready, job.ready + job.tensors)), common_(job.phases) {
    for (int t = 0; t < job_.tensors && method_.bins; ++t) {
      const int b = method_.bin[t];
      bin_bytes_[b] += job_.bytes[t];
      bin_phase_[b] = std::max(bin_phase_[b], job_.ready[t]);
      members_[b].push_back(t);
    }
    for (int u = 0; u < job_.updates; ++u)
      for (int i = job_.update_begin[u]; i < job_.update_begin[u + 1]; ++i)
        updates_of_[job_.update_tensors[i]].push_back(u);
    expect_updates();
    for (int t = 0; t < job_.tensors; ++t) ++in_phase_[job_.ready[t] + 1];
    std::partial_sum(in_phase_.begin(), in_phase_.end(), in_phase_.begin());
    for (int r = 0; r < job_.ranks; ++r) {
      ranks_[r].key = mix(seed + static_cast<std::uint64_t>(r + 1) * 0x9e3779b97f4a7c15ull);
      ranks_[r].phase = job_.phases;
      ranks_[r].wake = job_.cycle_time;
    }
  }

  void run() {
    while (step_ < last_step_) {
      for (std::size_t p = 0; p < pools_.size(); ++p) arrive(pools_[p], p);
      if (method_.synchronized)
        agree();
      else
        send_bin();
    }
    totals.background = -cpu_before_;
    for (const Rank& r : ranks_) totals.background += r.cpu;
  }

  Totals totals{};
  std::vector<double> ends;  // of each step's last transfer, the first one's start at 0 left out
  std::vector<Slice> slices;

 private:
  // What a background thread waits for: the others, its transfers' end, its timer, a tensor to
  // send, its bin's last tensor, a core; or it has come.
  enum Stage : std::int32_t { kAgree, kRelease, kTimer, kRest, kBin, kStart, kArrived };

  struct Rank {
    double at = 0;     // when the background thread's next event is
    double agreed, release = 0;
    double wake;       // when it is to wake up
    double cycle;      // when that began
    double started;    // waiting for the others
    double level = 0;  // of a core that it wants now
    double cpu = 0;
    double left = 0;   // of its phase or update
    double input_left = 0;
    double factor = 1;
    double begin = 0;  // of the next step's computing
    double began = 0;
    double ready = 0;  // its last tensor
    std::uint64_t key, draws = 0;
    double updated = 0;  // since when it computes an update
    std::int32_t stage = kRelease, phase;
    std::int32_t update = 0;  // its next of those that are due, of all steps
    bool updating = false;
    std::int32_t step = -1;
    std::int32_t popped = 0, popped_before = 0;
    std::int32_t taken = -1;  // what it has popped already
  };

  // An update whose tensors have all been reduced, and since when.
  struct Due {
    double at;
    std::int32_t update;
  };

  struct Pool {
    double now = 0;
    bool busy = false;
  };

  double draw(Rank& r, const Quantiles& q) { return chance(q, r.key, ++r.draws); }

  static double chance(const Quantiles& q, std::uint64_t key, std::uint64_t number) {
    const std::uint64_t bits = mix(key + number * 0x9e3779b97f4a7c15ull);
    return q.at(static_cast<double>(bits >> 11) * 0x1p-53);
  }

  void note(int rank, Doing doing, double from, double to) {
    if (rank < shown_ && to > from) slices.push_back({rank, doing, from, to});
  }

  // Follows a pool until all of its background threads have come.
  void arrive(Pool& pool, std::size_t index) {
    const int first = static_cast<int>(index) * job_.pool_ranks, last = first + job_.pool_ranks;
    if (alike_)
      for (int i = first; i < last; ++i) leave(ranks_[i], i, agreed_, released_);
    for (;;) {
      double wanted = 0, background = 0, reading = 0;
      bool all = true;
      for (int i = first; i < last; ++i) {
        const Rank& r = ranks_[i];
        all = all && r.stage == kArrived;
        background += r.level;
        wanted += threads(r);
        if (r.input_left > 0) reading += job_.input_threads;
      }
      const bool apart = method_.reserved > 0;
      const bool reads_apart = method_.input_cores > 0;
      if (!apart) wanted += background;
      if (!reads_apart) wanted += reading;
      pool.busy = apart ? background + 1 > method_.reserved : wanted + 1 > compute_cores_;
      if (all) {
        for (int i = first; i < last; ++i) come(ranks_[i]);
        return;
      }
      const double rate = advance_on(compute_cores_, wanted);
      const double input = reads_apart ? advance_on(method_.input_cores, reading) : rate;
      const double own = apart ? advance_on(method_.reserved, background) : rate;

      double next = kNever;
      for (int i = first; i < last; ++i) {
        const Rank& r = ranks_[i];
        next = std::min(next, r.at);
        if (computes(r))
          next = std::min(next, pool.now + r.left / speed(r, rate));
        else if (r.update < static_cast<int>(due_.size()))
          next = std::min(next, due_[r.update].at);
        else if (!(r.input_left > 0))
          next = std::min(next, r.begin);
        if (r.input_left > 0) next = std::min(next, pool.now + r.input_left / input);
      }
      next = std::max(next, pool.now);
      const double passed = next - pool.now;
      for (int i = first; i < last; ++i) {
        Rank& r = ranks_[i];
        r.cpu += passed * r.level * own;
        if (r.input_left > 0) {
          if (pool.now + r.input_left / input <= next) {
            r.input_left = 0;
            note(i, kInput, r.began, next);
          } else {
            r.input_left -= passed * input;
          }
        }
        if (computes(r)) {
          if (pool.now + r.left / speed(r, rate) > next)
            r.left -= passed * speed(r, rate);
          else if (r.updating)
            end_update(r, i, next);
          else
            end_phase(r, i, next);
        }
        if (!computes(r)) update(r, next);
        if (!computes(r) && !(r.input_left > 0) && r.begin <= next) begin(r, next, i);
        while (r.at <= next) advance(r, pool, i);
      }
      pool.now = next;
    }
  }

  // How fast threads advance that together want so much of these cores.
  static double advance_on(double cores, double wanted) {
    return wanted > cores ? cores / wanted : 1;
  }

  bool computes(const Rank& r) const { return r.phase < job_.phases || r.updating; }

  double threads(const Rank& r) const {
    if (r.phase < job_.phases) return job_.threads[r.phase];
    return r.updating ? job_.update_threads[due_[r.update].update] : 0;
  }

  double speed(const Rank& r, double rate) const { return threads(r) > 0 ? rate : 1; }

  void begin(Rank& r, double now, int i) {
    ++r.step;
    r.began = now;
    r.begin = kNever;
    // numbered by the step, so that it is the same under every method
    r.factor = chance(job_.jitter, ~r.key, static_cast<std::uint64_t>(r.step + 1));
    r.input_left = job_.input_seconds;
    r.phase = 0;
    r.left = job_.seconds[0] * r.factor;
    if (!(r.left > 0)) end_phase(r, i, now);
  }

  void end_phase(Rank& r, int i, double now) {
    do {
      if (r.phase == last_phase_) {
        r.ready = now;
        note(i, kCompute, r.began, now);
      }
      ++r.phase;
      r.left = r.phase < job_.phases ? job_.seconds[r.phase] * r.factor : 0;
    } while (r.phase < job_.phases && !(r.left > 0));
    if (r.stage == kBin && r.step == step_ && complete(r)) {
      r.wake = now;
      r.stage = kTimer;
      r.at = now;
    }
    if (r.stage == kRest && waiting(r)) r.at = now;
  }

  // The next update that is due.
  void update(Rank& r, double now) {
    for (; r.update < static_cast<int>(due_.size()); ++r.update) {
      const Due& one = due_[r.update];
      if (one.at > now) return;
      r.left = job_.update_seconds[one.update] * r.factor;
      r.updated = now;
      if ((r.updating = r.left > 0)) return;
    }
  }

  void end_update(Rank& r, int i, double now) {
    note(i, kCompute, r.updated, now);
    r.updating = false;
    ++r.update;
  }

  // Whether the rank has submitted what was not sent: tensors, or the next bin.
  bool waiting(const Rank& r) const {
    if (r.step != step_) return false;
    return method_.bins ? complete(r) : in_phase_[r.phase] > in_phase_[phases_sent_];
  }

  bool complete(const Rank& r) const { return r.phase > bin_phase_[bin_]; }

  // The background thread's next event.
  void advance(Rank& r, const Pool& pool, int i) {
    const double now = r.at;
    switch (r.stage) {
      case kAgree:
        r.stage = kRelease;
        r.at = r.release;
        r.level = job_.transferring;
        break;
      case kRelease:
        r.level = 0;
        if (!method_.synchronized) {
          const bool there = r.step == step_ && complete(r);
          r.stage = there ? kStart : kBin;
          r.at = there ? now : kNever;
        } else if (r.wake > now) {
          note(i, kSleep, now, r.wake);
          r.stage = kTimer;
          r.at = r.wake;
        } else if (method_.rest > 0 && !waiting(r)) {
          // its queue was looked into before: what comes now is for the next cycle
          r.taken = r.step == step_ ? r.phase : 0;
          r.cycle = now;
          r.wake = now;
          r.stage = kRest;
          r.at = now + method_.rest;
        } else {
          r.stage = kStart;
        }
        break;
      case kTimer:
        r.stage = kRest;
        if (method_.rest > 0 && !waiting(r)) {
          r.at = now + method_.rest;
          break;
        }
        [[fallthrough]];
      case kRest: {
        note(i, kSleep, r.wake, now);
        const double late = draw(r, pool.busy ? job_.wake_busy : job_.wake);
        note(i, kOversleep, now, now + late);
        ++totals.sleeps;
        totals.oversleep += late;
        totals.worst_oversleep = std::max(totals.worst_oversleep, late);
        r.stage = kStart;
        r.at = now + late;
        break;
      }
      case kStart:
        r.started = now;
        if (r.taken < 0) r.cycle = now;
        r.popped = r.taken >= 0 ? r.taken : r.step == step_ ? r.phase : 0;
        r.taken = -1;
        r.level = !method_.synchronized        ? job_.transferring
                  : method_.between_tests > 0 ? 0
                                              : job_.synchronizing;
        r.cpu += job_.cycle_seconds * (1 - r.level);
        r.stage = kArrived;
        r.at = kNever;
        break;
      default:
        r.at = kNever;
    }
  }

  // A rank's background thread has come to the caches' allreduce.
  void come(Rank& r) {
    first_ = std::min(first_, r.started);
    come_ = std::max(come_, r.started + job_.cycle_seconds);
    common_ = std::min(common_, r.popped);
    requests_ += in_phase_[r.popped] - in_phase_[r.popped_before];
    r.popped_before = r.popped;
  }

  // It goes on where the cycle was agreed on, then where its transfers ended.
  void leave(Rank& r, int i, double agreed, double release) {
    note(i, kWait, r.started, agreed);
    if (release > agreed) note(i, kTransfer, agreed, release);
    r.agreed = agreed;
    r.release = release;
    r.wake = r.cycle + job_.cycle_time;
    r.stage = kAgree;
    r.at = agreed;
  }

  // All have come: the caches are synchronized, and what is ready everywhere is transferred.
  void agree() {
    const bool uncached = !(job_.cache == 2 && step_ > 0) && requests_ > 0;
    double agreed = come_;
    if (job_.cache > 0) agreed += job_.sync;
    if (job_.cache == 0 || uncached)
      agreed += 2 * job_.few_bytes + (uncached ? job_.request * static_cast<double>(requests_) : 0);

    double begin = agreed;
    const bool tests = method_.between_tests > 0;
    alike_ = !tests && !job_.answers;
    for (int i = 0; i < job_.ranks && !alike_; ++i) {
      Rank& r = ranks_[i];
      const double from = r.started + job_.cycle_seconds;
      if (tests) {
        const double slept = method_.between_tests + drawn(r, i, job_.wake, job_.wake_busy);
        const double asked = std::ceil((agreed - from) / slept);
        r.agreed = from + asked * slept;
        r.cpu += asked * job_.test;
      } else {
        r.agreed = agreed + answer(r, i);
      }
      begin = std::max(begin, r.agreed);
    }
    const std::int64_t before = totals.batches;
    double end = begin;
    if (!method_.bins) {
      if (common_ > phases_sent_) end = transfers(begin, common_);
      phases_sent_ = common_;
    } else if (bin_phase_[bin_] < common_ && first_ > bin_end_) {
      end = bin_end_ = transfer(begin, bin_bytes_[bin_], members_[bin_]);
      ++bin_;
    }
    const bool stays = totals.batches > before && !job_.offloaded;
    ++totals.cycles;
    totals.empty += totals.batches == before;
    agreed_ = agreed;
    released_ = stays ? end : agreed;
    const bool resynchronized = method_.agree_every && ++since_ >= method_.agree_every;
    // where all go on at the same moment, each does so when its pool is followed again: memory is
    // passed over once a cycle
    if (!alike_ || resynchronized) {
      for (int i = 0; i < job_.ranks; ++i) {
        const double own = alike_ ? agreed : ranks_[i].agreed;
        leave(ranks_[i], i, own, stays ? end : own);
      }
      alike_ = false;
    }
    if (resynchronized) resynchronize();
    if (sent_ == job_.tensors) end_step(job_.offloaded ? device_ : end);
    first_ = kNever;
    come_ = 0;
    common_ = job_.phases;
    requests_ = 0;
  }

  // GS: all sleep the least that any of them would.
  void resynchronize() {
    since_ = 0;
    double all = 0, least = kNever;
    for (const Rank& r : ranks_) {
      all = std::max(all, r.release);
      least = std::min(least, std::max(0.0, r.wake - r.release));
    }
    all += job_.few_bytes;
    for (Rank& r : ranks_) {
      r.release = all;
      r.wake = all + least;
    }
  }

  double drawn(Rank& r, int i, const Quantiles& idle, const Quantiles& busy) {
    return draw(r, pools_[i / job_.pool_ranks].busy ? busy : idle);
  }

  void expect_updates() {
    waiting_for_.resize(job_.updates);
    for (int u = 0; u < job_.updates; ++u)
      waiting_for_[u] = job_.update_begin[u + 1] - job_.update_begin[u];
  }

  double answer(Rank& r, int i) {
    return job_.answers ? drawn(r, i, job_.answer, job_.answer_busy) : 0;
  }

  // Places what is ready on all ranks, one after another; where the last transfer ends.
  double transfers(double begin, int common) {
    double end = begin, bytes = 0;
    fused_.clear();
    for (int t = 0; t < job_.tensors; ++t) {
      if (job_.ready[t] < phases_sent_ || job_.ready[t] >= common) continue;
      if (!fused_.empty() && bytes + job_.bytes[t] > job_.fusion_threshold) {
        end = transfer(end, bytes, fused_);
        bytes = 0;
        fused_.clear();
      }
      bytes += job_.bytes[t];
      fused_.push_back(t);
    }
    if (!fused_.empty()) end = transfer(end, bytes, fused_);
    return end;
  }

  double transfer(double from, double bytes, const std::vector<std::int32_t>& tensors) {
    const double begin = job_.offloaded ? std::max(from, device_) : from;
    double seconds = job_.start + job_.per_byte * bytes;
    if (tensors.size() > 1) seconds += job_.copy_per_byte * bytes;
    if (job_.answers && !job_.offloaded) {
      double latest = 0;
      for (int i = 0; i < job_.ranks; ++i) latest = std::max(latest, answer(ranks_[i], i));
      seconds += latest;
    }
    device_ = begin + seconds;
    sent_ += static_cast<int>(tensors.size());
    for (const int t : tensors)
      for (const int u : updates_of_[t])
        if (--waiting_for_[u] == 0) due_.push_back({device_, u});
    ++totals.batches;
    totals.transfer += seconds;
    return device_;
  }

  // All have come with a bin's tensors (TOPO).
  void send_bin() {
    const double come = come_;
    const double end = transfer(come, bin_bytes_[bin_], members_[bin_]);
    ++totals.cycles;
    for (int i = 0; i < job_.ranks; ++i) {
      Rank& r = ranks_[i];
      const double from = r.started + job_.cycle_seconds;
      leave(r, i, job_.offloaded ? from : come, job_.offloaded ? from : end);
    }
    come_ = 0;
    if (++bin_ == method_.bins) end_step(end);
  }

  void end_step(double end) {
    const double from = ends.empty() ? 0 : ends.back();
    double sum = 0, slowest = 0;
    for (Rank& r : ranks_) {
      sum += r.ready - from;
      slowest = std::max(slowest, r.ready - from);
      r.begin = end;
      r.popped_before = 0;
    }
    totals.compute += sum;
    totals.slowest += slowest;
    ends.push_back(end);
    sent_ = 0;
    phases_sent_ = 0;
    bin_ = 0;
    expect_updates();
    if (++step_ == warmup_) {
      totals = Totals{};
      for (const Rank& r : ranks_) cpu_before_ += r.cpu;
    }
  }

  const Job job_;
  const Method method_;
  const int last_step_, warmup_, shown_;
  const double compute_cores_;
  std::vector<Rank> ranks_;
  std::vector<Pool> pools_;
  std::vector<double> bin_bytes_;
  std::vector<std::int32_t> bin_phase_, in_phase_, fused_;
  std::vector<std::vector<std::int32_t>> members_, updates_of_;  // per bin, per tensor
  std::vector<std::int32_t> waiting_for_;  // per update: how many of its tensors are not reduced
  std::vector<Due> due_;
  const int last_phase_;
  int step_ = 0, bin_ = 0, since_ = 0, sent_ = 0, phases_sent_ = 0;
  std::int32_t common_;
  std::int64_t requests_ = 0;
  bool alike_ = false;  // all go on at agreed_, then released_
  double first_ = kNever;  // when the first rank has looked for what to send in this cycle
  double bin_end_ = -1;    // of the last bin that was sent
  double come_ = 0, agreed_ = 0, released_ = 0, device_ = 0, cpu_before_ = 0;
};

}  // namespace

// What Python calls (ranks_binding.py).
DLTUNE_MIRRORED(Job, Job)
DLTUNE_MIRRORED(Method, Method)
DLTUNE_MIRRORED(Quantiles, Quantiles)
DLTUNE_MIRRORED(Slice, Slice)
DLTUNE_MIRRORED(Totals, Totals)

EXPORT void* dltune_ranks_run(const Job* job, const Method* method, int steps, int warmup,
                              std::uint64_t seed, int drawn, double* ends, Totals* totals) {
  auto* simulation = new Simulation(*job, *method, steps, warmup, seed, drawn);
  simulation->run();
  std::copy(simulation->ends.begin(), simulation->ends.end(), ends);
  *totals = simulation->totals;
  return simulation;
}

EXPORT const Slice* dltune_ranks_slices(const void* simulation, std::int64_t* count) {
  const auto& slices = static_cast<const Simulation*>(simulation)->slices;
  *count = static_cast<std::int64_t>(slices.size());
  return slices.data();
}

EXPORT void dltune_ranks_delete(void* simulation) { delete static_cast<Simulation*>(simulation); }
