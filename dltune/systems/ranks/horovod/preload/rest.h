// When a background thread may sleep on because its rank has nothing to send. Our own; why it may,
// and what it must look out for: docs/explanation/decisions/cycles-on-demand.md.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "arrivals.h"
#include "clock.h"
#include "counts.h"

namespace dltune {

class Rest {
 public:
  // At most so many seconds; 0: not at all.
  Rest(double most, Counts& counts) : most_(most), counts_(counts), named_(now()) {}
  ~Rest() { free(sent_); }

  bool on() const { return most_ > 0; }
  void off() { most_ = 0; }

  // Horovod sleeps so shortly, 100 ns, in no cycle but where it waits for the data of a tensor.
  static bool is_of_cycle(double wish) { return wish >= 1e-6; }

  // The cycle's sleep is over: on, while there is nothing to send. Without a tensor of this rank the
  // others can send none either, unless it has joined.
  void after_sleep() {
    if (idle_) until_more_than(seen_);
    seen_ = Arrivals::count();
    slept_ = true;
    idle_ = false;
  }

  // `words`: what this rank has to say of its queue, until the ranks' answer takes its place.
  void before_synchronisation(const long long* words, int count) {
    if (!slept_) {
      // a cycle without a sleep, since the last one was long: it has looked into its queue already,
      // and a tensor that ends this rest is for the next cycle; all that had arrived when the last
      // synchronisation was over is taken out by now
      seen_ = settled_;
      if (empty(words, count)) until_more_than(seen_);
    }
    slept_ = false;
    keep(words, count);
  }

  void after_synchronisation(const long long* words, int count) {
    idle_ = nothing_left(words, count);
    settled_ = Arrivals::count();
  }

 private:
  // So long after a negotiation by name cycles are as Horovod's own. Our choice.
  static constexpr double kNamed = 1;
  static constexpr long long kStates = 7;

  void until_more_than(unsigned seen) {
    if (Arrivals::count() != seen || now() - named_ <= kNamed) return;
    const double from = now();
    Arrivals::wait(seen, most_);
    ++counts_.rests;
    counts_.rested += now() - from;
  }

  void keep(const long long* words, int count) {
    if (count > room_) {
      void* more = realloc(sent_, count * sizeof *words);
      if (!more) return off();
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

  double most_;
  Counts& counts_;
  double named_;               // when a tensor was last negotiated by name
  bool idle_ = false;          // nothing was left to send after the last synchronisation
  bool slept_ = false;         // the cycle that runs began with a sleep
  unsigned seen_ = 0;          // arrivals that the cycle that runs has taken out
  unsigned settled_ = 0;       // those before the last synchronisation was over
  unsigned served_ = 0;        // those before the last one that left none of its tensors
  long long* sent_ = nullptr;  // the words of this rank
  int room_ = 0;               // how many fit in there
};

}  // namespace dltune
