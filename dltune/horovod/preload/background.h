// Horovod's background thread: how it waits for a collective (NBCS), and how long it sleeps between
// cycles (GS). Pumma's thesis, sections 6.3.1 and 6.3.2.
//
// GS never waits for anybody. An agreement is a non-blocking allreduce on a communicator of its
// own; after every Nth cache synchronisation each rank starts exactly one, either when it falls
// asleep or, if it does not sleep at all, with the wish 0 when it reaches the next synchronisation.
// A sleeper that learns the least wish in time cuts its own sleep short; it never sleeps longer
// than it meant to. An agreement is waited for only after the next synchronisation is complete, by
// when every rank has started it.
#pragma once

#include "arrivals.h"
#include "counts.h"
#include "pmpi.h"

namespace dltune {

// Tests before the first sleep: what is already there, or a few microseconds away, needs none.
constexpr int kTests = 4;
// Between two tests of an agreement that is waited for, where NBCS does not say. Our choice.
constexpr double kLook = 30e-6;
// How often a sleeper looks whether it may end sooner, at least: each look costs a wake-up, and
// finding out late costs a part of the sleep. Our choice.
constexpr int kLooks = 4;
// A sleep grows to half of what was waited already, but not beyond this: up to here, longer sleeps
// cost training nothing that could be measured, and each wake-up costs what 20 us of work do.
constexpr double kLongest = 400e-6;
// A rank that threw an exception may have left the others' last agreement alone.
constexpr double kPatience = 5;

// So long after a negotiation by name cycles are as Horovod's own. Our choice.
constexpr double kNamed = 1;
// A sleep of less is none of a cycle: where the data of a tensor may come later than the tensor,
// Horovod looks for it every 100 ns.
constexpr double kShort = 1e-6;

struct Settings {
  double pause = 0;  // NBCS: least seconds between two tests; 0: off
  int every = 0;     // GS: cycles from one agreement to the next; 0: off
  double rest = 0;   // most seconds that a thread with nothing to send rests; 0: off
  bool invalid = false;
  const char* folder = nullptr;
};

class Background {
 public:
  // Collective over `comm`, whose cache synchronisation is about to begin for the first time.
  Background(const Pmpi& mpi, MPI_Comm comm, const Settings& settings)
      : mpi_(mpi), comm_(comm), settings_(settings) {
    mpi_.Comm_rank(comm, &rank_);
    mpi_.Comm_size(comm, &size_);
    if (!same_everywhere()) {
      if (rank_ == 0)
        fputs("dltune: DLTUNE_NBCS or DLTUNE_GS is not the same number on all ranks, or one of them "
              "or DLTUNE_REST is no number: all are off\n",
              stderr);
      settings_.pause = settings_.every = settings_.rest = 0;
    }
    if (settings_.every && mpi_.Comm_dup(comm, &own_) != MPI_SUCCESS) settings_.every = 0;
    if (settings_.pause > 0 || settings_.every || settings_.rest > 0) sleep_precisely();
    start_ = named_ = now();
    cpu_ = now(CLOCK_THREAD_CPUTIME_ID);
    waited_ = run_queue_wait();
  }

  bool agreeing() const { return pending_; }
  bool nonblocking() const { return settings_.pause > 0; }
  bool synchronises(MPI_Comm comm) const { return comm == comm_; }
  void count() { ++counts_.collectives; }

  // Until the collective is complete, or with its error.
  int wait(MPI_Request* request) {
    const double least = settings_.pause > 0 ? settings_.pause : kLook;
    const double from = now();
    for (int tests = 1;; ++tests) {
      int done = 0;
      ++counts_.tests;
      const int error = mpi_.Test(request, &done, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS || done) return error;
      if (tests < kTests) continue;
      const double half = (now() - from) / 2, grown = half < kLongest ? half : kLongest;
      doze(grown > least ? grown : least);
    }
  }

  // `words`: what this rank has to say of its queue, until the ranks' answer takes its place.
  int before_synchronisation(const long long* words, int count) {
    if (settings_.rest > 0) {
      if (!slept_) rest_late(words, count);
      slept_ = false;
      keep(words, count);
    }
    return due_ ? agree(0) : MPI_SUCCESS;
  }

  void after_synchronisation(const long long* words, int count) {
    ++counts_.cycles;
    if (settings_.every && counts_.cycles % settings_.every == 0) due_ = true;
    if (settings_.rest > 0) {
      idle_ = nothing_left(words, count);
      settled_ = Arrivals::count();
    }
  }

  // A cycle has another one's synchronisation: of a process set, whose members may have much to
  // send while this rank has not.
  void has_sets() { settings_.rest = 0; }

  // The cycle's sleep, if that is what it is: true when it was slept.
  bool sleep(double wish) {
    if (settings_.rest > 0) return rest(wish);
    if (!due_ || agree(wish) != MPI_SUCCESS) return false;
    double end = now() + wish;
    const double look = wish / kLooks > kLook ? wish / kLooks : kLook;
    for (int tests = 1; pending_ && now() < end && poll(); ++tests) {
      if (!pending_)
        end = earlier(end);
      else if (tests >= kTests)
        doze(look < end - now() ? look : end - now());
    }
    for (double t = now(); t < end; t = now()) doze(end - t);
    return true;
  }

  void release() { free(sent_); }

  // Nobody is left waiting for this rank's part in the last agreement.
  void settle() {
    if (due_) agree(0);
    for (const double end = now() + kPatience; pending_ && now() < end;) {
      if (!poll()) break;
      if (pending_) doze(kLook);
    }
  }

  void write() const {
    if (!settings_.folder) return;
    const double waited = run_queue_wait();
    write_counts(settings_.folder, rank_, size_, counts_, now() - start_,
                 now(CLOCK_THREAD_CPUTIME_ID) - cpu_, waited < 0 ? waited : waited - waited_);
  }

 private:
  bool same_everywhere() {
    const int nbcs = settings_.pause > 0, every = settings_.every;
    const int mine[] = {nbcs, -nbcs, every, -every, -settings_.invalid};
    int least[5];
    if (mpi_.Allreduce(mine, least, 5, mpi_.int_, mpi_.min, comm_) != MPI_SUCCESS) return false;
    return least[0] == -least[1] && least[2] == -least[3] && !least[4];
  }

  int agree(double wish) {
    if (pending_) {
      const int error = wait(&agreement_);
      pending_ = false;
      if (error != MPI_SUCCESS) return error;
    }
    due_ = false;
    wish_ = wish;
    const int error =
        mpi_.Iallreduce(&wish_, &least_, 1, mpi_.double_, mpi_.min, own_, &agreement_);
    pending_ = error == MPI_SUCCESS;
    counts_.agreements += pending_;
    return error;
  }

  // As long as Horovod asked for; then on, while this rank has nothing to send. Without a tensor
  // of this rank the others can send none either, unless it has joined.
  bool rest(double wish) {
    if (wish < kShort) return false;
    for (double end = now() + wish, t = now(); t < end; t = now()) doze(end - t);
    if (idle_) rest_from(seen_);
    seen_ = Arrivals::count();
    slept_ = true;
    idle_ = false;
    return true;
  }

  // Of a cycle without a sleep, since the last one was long: it has looked into its queue already,
  // and a tensor that ends this rest is for the next cycle. All that had arrived when the last
  // synchronisation was over is taken out by now.
  void rest_late(const long long* words, int count) {
    seen_ = settled_;
    if (empty(words, count)) rest_from(seen_);
  }

  // Unless more than `seen` have arrived.
  void rest_from(unsigned seen) {
    if (Arrivals::count() != seen || now() - named_ <= kNamed) return;
    const double from = now();
    Arrivals::wait(seen, settings_.rest);
    ++counts_.rests;
    counts_.rested += now() - from;
  }

  void keep(const long long* words, int count) {
    if (count > room_) {
      void* more = realloc(sent_, count * sizeof *words);
      if (!more) return has_sets();
      sent_ = static_cast<long long*>(more);
      room_ = count;
    }
    memcpy(sent_, words, count * sizeof *words);
  }

  static bool empty(const long long* words, int count) {
    for (int i = 1; i < count; ++i)
      if (words[i]) return false;
    return count && words[0] == kStates;
  }

  // In the words a bit is set for each tensor of this rank that the cache knows, and for each of
  // three states that do not hold: shutting down, a tensor that the cache does not know, one that
  // it knows otherwise (Horovod's CacheCoordinator). The ranks' answer is what they have in common:
  // where it is less than what was sent, a tensor waits for others. Of a rank that has joined all
  // bits are set though nothing has arrived in it.
  bool nothing_left(const long long* words, int count) {
    if (!count || count > room_) return false;
    // such tensors are negotiated by name, and may wait without a bit that tells of it
    if ((words[0] & kStates) != kStates) named_ = now();
    if (memcmp(words, sent_, count * sizeof *words) != 0) return false;
    if (empty(words, count)) return true;
    const bool own = Arrivals::count() != served_;
    served_ = seen_;
    return own;
  }

  // False on an error, which the next collective of this communicator will meet as well.
  bool poll() {
    int done = 0;
    ++counts_.tests;
    if (mpi_.Test(&agreement_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done) pending_ = false;
    return true;
  }

  // When to wake up, now that the least wish is known.
  double earlier(double end) {
    const double sooner = now() + least_;
    if (sooner >= end) return end;
    counts_.saved += end - sooner;
    ++counts_.shortened;
    return sooner;
  }

  void doze(double time) {
    if (time <= 0) return;
    const double from = now();
    sleep_for(time);
    ++counts_.sleeps;
    counts_.slept += now() - from;
  }

  static constexpr long long kStates = 7;

  const Pmpi& mpi_;
  const MPI_Comm comm_;
  MPI_Comm own_{};
  Settings settings_;
  int rank_ = 0, size_ = 1;
  Counts counts_;
  double start_, cpu_, waited_;
  bool due_ = false, pending_ = false;
  bool idle_ = false;       // nothing was left to send after the last synchronisation
  bool slept_ = false;      // the cycle that runs began with a sleep
  unsigned seen_ = 0;       // arrivals that the cycle that runs has taken out
  unsigned settled_ = 0;    // those before the last synchronisation was over
  unsigned served_ = 0;     // those before the last one after which nothing was left
  double named_ = 0;        // when a tensor was last negotiated by name
  long long* sent_ = nullptr;
  int room_ = 0;            // words in `sent_`
  double wish_ = 0, least_ = 0;
  MPI_Request agreement_{};
};

}  // namespace dltune
