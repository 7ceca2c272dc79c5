// Horovod's background thread: how it waits for a collective (NBCS), and how long it sleeps between
// cycles (GS; rest.h). Pumma's thesis, sections 6.3.1 and 6.3.2.
//
// GS never waits for anybody. An agreement is a non-blocking allreduce on a communicator of its
// own; after every Nth cache synchronisation each rank starts exactly one, either when it falls
// asleep or, if it does not sleep at all, with the wish 0 when it reaches the next synchronisation.
// A sleeper that learns the least wish in time cuts its own sleep short; it never sleeps longer
// than it meant to. An agreement is waited for only after the next synchronisation is complete, by
// when every rank has started it.
#pragma once

#include "counts.h"
#include "pmpi.h"
#include "rest.h"

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

struct Settings {
  double pause = 0;  // NBCS: least seconds between two tests; 0: off
  int every = 0;     // GS: cycles from one agreement to the next; 0: off
  double rest = 0;   // most seconds that a thread with nothing to send rests; 0: off
  bool invalid = false;
  bool off = false;  // nothing is done, and nothing counted
  const char* folder = nullptr;
};

class Background {
 public:
  // Collective over `comm`, whose cache synchronisation is about to begin for the first time.
  Background(const Pmpi& mpi, MPI_Comm comm, const Settings& settings)
      : mpi_(mpi), comm_(comm), settings_(settings), rest_(settings.rest, counts_) {
    mpi_.Comm_rank(comm, &rank_);
    mpi_.Comm_size(comm, &size_);
    if (!same_everywhere()) {
      if (rank_ == 0)
        fputs("dltune: DLTUNE_NBCS or DLTUNE_GS differs between ranks, or a value of DLTUNE_NBCS, "
              "DLTUNE_GS or DLTUNE_REST is invalid: all three are off\n",
              stderr);
      settings_.pause = settings_.every = 0;
      rest_.off();
    }
    if (settings_.every && mpi_.Comm_dup(comm, &own_) != MPI_SUCCESS) settings_.every = 0;
    if (settings_.pause > 0 || settings_.every || rest_.on()) sleep_precisely();
    start_ = now();
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
    if (rest_.on()) rest_.before_synchronisation(words, count);
    return due_ ? agree(0) : MPI_SUCCESS;
  }

  void after_synchronisation(const long long* words, int count) {
    ++counts_.cycles;
    if (settings_.every && counts_.cycles % settings_.every == 0) due_ = true;
    if (rest_.on()) rest_.after_synchronisation(words, count);
  }

  // A cycle has another one's synchronisation: of a process set, whose members may have much to
  // send while this rank has not.
  void has_sets() { rest_.off(); }

  // The cycle's sleep, if that is what it is: true when it was slept.
  bool sleep(double wish) {
    if (rest_.on() && Rest::is_of_cycle(wish)) {
      for (double end = now() + wish, t = now(); t < end; t = now()) doze(end - t);
      rest_.after_sleep();
      return true;
    }
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

  const Pmpi& mpi_;
  const MPI_Comm comm_;
  MPI_Comm own_{};
  Settings settings_;
  int rank_ = 0, size_ = 1;
  Counts counts_;
  Rest rest_;
  double start_, cpu_, waited_;
  bool due_ = false, pending_ = false;
  double wish_ = 0, least_ = 0;
  MPI_Request agreement_{};
};

}  // namespace dltune
