// Strategies 3 and 4 of the paper (section III-D) as one piece of decision code.
//
// The simulator and admission inside a job include this same file, so what was predicted is what is
// enforced. It decides only: the caller brings the clock, holds a lock around every call, and starts
// the work that was admitted.
//
//   strategy 3  whenever cores idle: the first ready op with a candidate that fits the idle cores
//               and ends no later than what runs, with its fewest fitting threads; when no ready
//               op has one, the most time-consuming ready op whose strategy-2 choice fits.
//   strategy 4  when no core idles: the ready op with the shortest serial time, on a second
//               hardware thread of one core.
//
// Nothing starves. A candidate of strategy 3 and an op of strategy 4 end no later than what already
// runs, so only the fall-back can move the moment at which the machine falls empty. An op that
// kPatience later ones have overtaken closes that fall-back to all others: the machine then drains
// within the longest remaining time, and the op that has waited longest runs on the empty machine.
//
// Decisions depend on nothing but the calls made so far: ties go to the op that was ready first and
// to the lowest core index. After the first steps no call allocates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dltune {

// "three candidates" (section III-D, an empirical number of the paper).
constexpr int kCandidates = 3;
// How much slower than predicted an op must run beside another to count as disturbed. Our choice:
// the paper's own co-run with thread control loses 25 % at most through fewer threads (Table III),
// so what is lost beyond that is more than co-running is worth.
constexpr double kDisturbed = 1.25;
// How often it must have been seen before a pair is avoided. Our choice: the fewest samples whose
// median one outlier cannot move.
constexpr int kSightings = 3;
// How many of the latest sightings the median is taken over. Our choice.
constexpr int kRemembered = 9;
// A neighbour counts when it ran beside an op for at least this part of the op's time. Our choice.
constexpr double kOverlap = 0.5;
// How many later ops may overtake a ready one. Our choice; the paper seldom saw more than five
// ready at once (section III-D), so three full queues of them.
constexpr int kPatience = 15;
// Throughput of a core with two busy hardware threads over one, where a machine does not state it:
// Table III, sequential 41.1 s against hyper-threading 39.9 s.
constexpr double kSmtThroughput = 41.1 / 39.9;
// Times closer than this are equal, in seconds: a clock's resolution.
constexpr double kTie = 1e-9;
// Cores that a CoreSet can name.
constexpr int kMaxCores = 1024;

enum class Placement : std::uint8_t { spread = 0, shared = 1 };

// A way to run an op, and its predicted time in seconds.
struct Candidate {
  int threads = 1;
  Placement placement = Placement::spread;
  double seconds = 0;
};

// What the scheduler knows about a ready op. `op` identifies its key for interference (negative:
// none is noted). `choice` is strategy 2's; `candidates` are strategy 3's, cut by the planner to
// within two threads of it, the most performant first. `serial`: seconds on one thread.
// `first_threads`: never on a second hardware thread, though strategy 4 is on.
struct Work {
  int op = -1;
  double serial = 0;
  Candidate choice;
  Candidate candidates[kCandidates];
  int count = 0;
  bool first_threads = false;
};

class CoreSet {
 public:
  void set(int core) { words_[core >> 6] |= bit(core); }
  void reset(int core) { words_[core >> 6] &= ~bit(core); }
  bool test(int core) const { return (words_[core >> 6] & bit(core)) != 0; }
  int count() const {
    int n = 0;
    for (std::uint64_t word : words_) n += __builtin_popcountll(word);
    return n;
  }
  // Calls f(core) in rising order.
  template <typename F>
  void each(F&& f) const {
    for (int i = 0; i < kWords; ++i)
      for (std::uint64_t word = words_[i]; word; word &= word - 1)
        f(i * 64 + __builtin_ctzll(word));
  }

 private:
  static constexpr int kWords = kMaxCores / 64;
  static std::uint64_t bit(int core) { return std::uint64_t{1} << (core & 63); }
  std::uint64_t words_[kWords] = {};
};

// One op that may start now. `threads`: how its work is divided; `cores`: where it runs;
// `second`: on the second hardware thread of its one core (strategy 4).
struct Admission {
  std::uint64_t ticket = 0;
  int threads = 0;
  double seconds = 0;
  bool second = false;
  CoreSet cores;
};

// Picks `n` of the `idle` cores. Shared fills whole tiles, spread takes one core of each tile
// before the second of any; both begin at the tile with the most idle cores, so that a machine's
// whole tiles go first and a placement is missed only when the idle cores do not offer it.
class Picker {
 public:
  Picker(const int* tile, int cores) {
    int tiles = 0;
    for (int c = 0; c < cores; ++c) tiles = std::max(tiles, tile[c] + 1);
    members_.resize(tiles);
    for (int c = 0; c < cores; ++c) members_[tile[c]].push_back(c);
    order_.reserve(tiles);
    free_.resize(tiles);
  }

  void pick(const CoreSet& idle, int n, Placement placement, CoreSet* out) {
    order_.clear();
    int largest = 0;
    for (int t = 0; t < static_cast<int>(members_.size()); ++t) {
      free_[t] = 0;
      for (int core : members_[t]) free_[t] += idle.test(core);
      largest = std::max(largest, free_[t]);
      if (free_[t]) order_.push_back(t);
    }
    std::sort(order_.begin(), order_.end(), [this](int a, int b) {
      return free_[a] != free_[b] ? free_[a] > free_[b] : a < b;
    });
    if (placement == Placement::spread) {
      for (int round = 0; round < largest && n > 0; ++round)
        for (int t : order_) {
          if (n == 0) break;
          if (round < free_[t]) take(idle, t, round, 1, out), --n;
        }
      return;
    }
    for (std::size_t i = 0; i < order_.size() && n > 0; ++i) {
      int t = order_[i];
      if (free_[t] > n)  // the last tile: the smallest that holds what is left to take
        for (std::size_t j = i + 1; j < order_.size() && free_[order_[j]] >= n; ++j)
          if (free_[order_[j]] < free_[t]) t = order_[j];
      int k = std::min(n, free_[t]);
      take(idle, t, 0, k, out);
      n -= k;
    }
  }

 private:
  void take(const CoreSet& idle, int t, int skip, int n, CoreSet* out) {
    for (int core : members_[t]) {
      if (n == 0) return;
      if (!idle.test(core)) continue;
      if (skip-- > 0) continue;
      out->set(core);
      --n;
    }
  }

  std::vector<std::vector<int>> members_;
  std::vector<int> order_, free_;
};

// Which ops disturb each other (section III-D, Discussion): pairs told, and pairs seen.
class Interference {
 public:
  Interference() { pairs_.reserve(1024); }

  void avoid(int a, int b) { pairs_[key(a, b)].avoided = true; }
  bool avoided(int a, int b) const {
    if (a < 0 || b < 0 || pairs_.empty()) return false;
    auto found = pairs_.find(key(a, b));
    return found != pairs_.end() && found->second.avoided;
  }

  // `op` took `ratio` times its predicted time with nothing beside it.
  void alone(int op, double ratio) {
    if (op < 0) return;
    if (op >= static_cast<int>(alone_.size())) alone_.resize(op + 1);
    alone_[op].add(ratio);
  }

  // `op` took `ratio` times its predicted time beside `other`. An op that is slower than predicted
  // even alone is judged by what it takes alone.
  void beside(int op, int other, double ratio) {
    if (op < 0 || other < 0) return;
    double usual = op < static_cast<int>(alone_.size()) ? alone_[op].median() : 1;
    Pair& pair = pairs_[key(op, other)];
    Window& seen = op <= other ? pair.lower : pair.higher;
    seen.add(ratio / std::max(1.0, usual));
    if (seen.count >= kSightings && seen.median() > kDisturbed) pair.avoided = true;
  }

  // Calls f(a, b) for every pair that is avoided, in no particular order.
  template <typename F>
  void each(F&& f) const {
    for (const auto& [k, pair] : pairs_)
      if (pair.avoided) f(static_cast<int>(k >> 32), static_cast<int>(k & 0xffffffffu));
  }

 private:
  struct Window {
    double latest[kRemembered] = {};
    int count = 0;  // ever seen
    void add(double x) { latest[count++ % kRemembered] = x; }
    double median() const {
      int n = std::min(count, kRemembered);
      if (n == 0) return 1;
      double sorted[kRemembered];
      for (int i = 0; i < n; ++i) {  // by insertion: nine at most
        int j = i;
        for (; j > 0 && sorted[j - 1] > latest[i]; --j) sorted[j] = sorted[j - 1];
        sorted[j] = latest[i];
      }
      return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    }
  };
  struct Pair {
    Window lower, higher;  // of the pair's op with the lower id, and with the higher
    bool avoided = false;
  };
  static std::uint64_t key(int a, int b) {
    return static_cast<std::uint64_t>(std::min(a, b)) << 32 |
           static_cast<std::uint32_t>(std::max(a, b));
  }

  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::vector<Window> alone_;
};

struct Options {
  bool corun = true;          // strategy 3; without it ops run one after the other
  bool hyperthreads = false;  // strategy 4
  double smt_throughput = kSmtThroughput;
};

class Scheduler {
 public:
  // `tile[c]`: the tile of core c, counted from 0; `hardware[c]`: its hardware threads. At most
  // kMaxCores cores.
  Scheduler(const int* tile, const int* hardware, int cores, Options options = {})
      : options_(options),
        cores_(cores),
        hardware_(hardware, hardware + cores),
        seconds_(cores, 0),
        picker_(tile, cores) {
    for (int c = 0; c < cores; ++c) idle_.set(c);
    idle_count_ = cores;
    ready_.reserve(1024);
    running_.reserve(1024);
  }

  Interference& interference() { return interference_; }
  int ready_count() const { return static_cast<int>(ready_.size()); }
  int running_count() const { return static_cast<int>(running_.size()); }

  // `ticket` waits to run.
  void ready(std::uint64_t ticket, const Work& work) { ready_.push_back({ticket, work, 0}); }

  // `ticket`, once admitted, has ended.
  void finished(std::uint64_t ticket, double now) {
    auto it = std::find_if(running_.begin(), running_.end(),
                           [&](const Running& r) { return r.ticket == ticket; });
    if (it == running_.end()) return;
    const Running ended = *it;
    running_.erase(it);
    if (ended.second) {
      --seconds_[ended.core];
    } else {
      ended.cores.each([&](int c) { idle_.set(c); });
      idle_count_ += ended.cores.count();
    }
    for (Running& other : running_) {
      const double overlap = now - std::max(other.start, ended.start);
      other.note(ended.op, overlap);
      if (ended.second) other.share(ended.core, overlap, options_.smt_throughput);
    }
    judge(ended, now);
  }

  // Appends to `out` what may start at `now`; returns how many.
  int decide(double now, std::vector<Admission>* out) {
    const std::size_t before = out->size();
    while (!ready_.empty()) {
      if (running_.empty()) {
        const int next = after_empty();
        start(next, ready_[next].work.choice, now, out);
      } else if (options_.corun && idle_count_ > 0) {
        if (!corun(now, out)) break;
      } else if (options_.hyperthreads && idle_count_ == 0) {
        if (!second(now, out)) break;
      } else {
        break;
      }
    }
    return static_cast<int>(out->size() - before);
  }

 private:
  struct Ready {
    std::uint64_t ticket;
    Work work;
    int overtaken;  // by how many that were ready later
  };
  // Whom an op ran beside, and for how long. The longest kNeighbours are kept.
  struct Neighbour {
    int op;
    double overlap;
  };
  static constexpr int kNeighbours = 8;
  struct Running : Admission {
    int op;
    double start;
    int core;  // strategy 4's
    Neighbour beside[kNeighbours] = {};
    int neighbours = 0;
    bool alone = true;
    double lost = 0;  // to strategy 4's ops on its cores, as predicted

    double remaining(double now) const { return std::max(0.0, start + seconds - now); }
    void share(int shared, double overlap, double smt_throughput) {
      if (!second && cores.test(shared)) lost += overlap * (1 - smt_throughput / 2) / cores.count();
    }
    void note(int other, double overlap) {
      alone = false;
      for (int i = 0; i < neighbours; ++i)
        if (beside[i].op == other) {
          beside[i].overlap += overlap;
          return;
        }
      if (neighbours < kNeighbours) {
        beside[neighbours++] = {other, overlap};
        return;
      }
      auto shortest = std::min_element(
          beside, beside + kNeighbours,
          [](const Neighbour& a, const Neighbour& b) { return a.overlap < b.overlap; });
      if (shortest->overlap < overlap) *shortest = {other, overlap};
    }
  };

  void judge(Running ended, double now) {
    const double took = now - ended.start;
    if (ended.seconds <= 0 || took <= 0) return;
    for (const Running& other : running_) {
      const double overlap = now - std::max(other.start, ended.start);
      ended.note(other.op, overlap);
      if (other.second) ended.share(other.core, overlap, options_.smt_throughput);
    }
    const double ratio = took / (ended.seconds + ended.lost);
    if (ended.alone) interference_.alone(ended.op, ratio);
    for (int i = 0; i < ended.neighbours; ++i)
      if (ended.beside[i].overlap >= kOverlap * took)
        interference_.beside(ended.op, ended.beside[i].op, ratio);
  }

  // A plan may divide work into more parts than there are cores.
  int needs(const Candidate& c) const { return std::min(c.threads, cores_); }

  double longest_remaining(double now) const {
    double longest = 0;
    for (const Running& r : running_) longest = std::max(longest, r.remaining(now));
    return longest;
  }

  bool disturbs(const Work& work) const {
    for (const Running& r : running_)
      if (interference_.avoided(work.op, r.op)) return true;
    return false;
  }

  // The ready op for an empty machine: one that lost its patience, else the most time-consuming.
  int after_empty() const {
    int best = 0;
    for (int i = 0; i < ready_count(); ++i) {
      if (ready_[i].overtaken >= kPatience) return i;
      if (ready_[i].work.choice.seconds > ready_[best].work.choice.seconds) best = i;
    }
    return best;
  }

  // Strategy 3; true when it started an op.
  bool corun(double now, std::vector<Admission>* out) {
    const double longest = longest_remaining(now) + kTie;
    int biggest = -1;
    bool draining = false;
    for (int i = 0; i < ready_count(); ++i) {
      const Work& work = ready_[i].work;
      draining = draining || ready_[i].overtaken >= kPatience;
      if (disturbs(work)) continue;
      const Candidate* fewest = nullptr;
      for (int k = 0; k < work.count; ++k) {
        const Candidate& c = work.candidates[k];
        if (needs(c) <= idle_count_ && c.seconds <= longest &&
            (!fewest || c.threads < fewest->threads))
          fewest = &c;
      }
      if (fewest) {
        start(i, *fewest, now, out);
        return true;
      }
      if (needs(work.choice) <= idle_count_ &&
          (biggest < 0 || work.choice.seconds > ready_[biggest].work.choice.seconds))
        biggest = i;
    }
    if (biggest < 0 || (draining && ready_[biggest].overtaken < kPatience)) return false;
    start(biggest, ready_[biggest].work.choice, now, out);
    return true;
  }

  // Strategy 4; true when it started an op. Two threads of a core share its throughput, so an op
  // on the second takes 2 / smt_throughput of its serial time; like strategy 3's, it must end no
  // later than what runs.
  bool second(double now, std::vector<Admission>* out) {
    int core = -1;
    for (int c = 0; c < cores_; ++c)
      if (seconds_[c] < hardware_[c] - 1 && (core < 0 || seconds_[c] < seconds_[core])) core = c;
    if (core < 0) return false;
    int shortest = -1;
    for (int i = 0; i < ready_count(); ++i)
      if (!ready_[i].work.first_threads && !disturbs(ready_[i].work) &&
          (shortest < 0 || ready_[i].work.serial < ready_[shortest].work.serial))
        shortest = i;
    if (shortest < 0) return false;
    const double predicted = ready_[shortest].work.serial * 2 / options_.smt_throughput;
    if (predicted > longest_remaining(now) + kTie) return false;
    Admission admission{ready_[shortest].ticket, 1, predicted, true, {}};
    admission.cores.set(core);
    ++seconds_[core];
    admit(shortest, admission, core, now, out);
    return true;
  }

  void start(int index, const Candidate& chosen, double now, std::vector<Admission>* out) {
    Admission admission{ready_[index].ticket, chosen.threads, chosen.seconds, false, {}};
    const int n = needs(chosen);
    picker_.pick(idle_, n, chosen.placement, &admission.cores);
    admission.cores.each([&](int c) { idle_.reset(c); });
    idle_count_ -= n;
    admit(index, admission, -1, now, out);
  }

  void admit(int index, const Admission& admission, int core, double now,
             std::vector<Admission>* out) {
    for (int i = 0; i < index; ++i) ++ready_[i].overtaken;
    running_.push_back({admission, ready_[index].work.op, now, core});
    ready_.erase(ready_.begin() + index);
    out->push_back(admission);
  }

  Options options_;
  int cores_, idle_count_;
  std::vector<int> hardware_, seconds_;  // per core: hardware threads, strategy 4's ops on it
  Picker picker_;
  CoreSet idle_;
  std::vector<Ready> ready_;
  std::vector<Running> running_;
  Interference interference_;
};

}  // namespace dltune
