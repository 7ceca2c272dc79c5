// A link between hosts: transfers take its latency and their bytes at its bandwidth. At most
// `channels` travel at once and share it evenly; who is next is the first that came, or of those
// that wait the one with the lowest priority number.
#pragma once

#include <algorithm>
#include <vector>

#include "engine.h"

namespace dltune::sim {

// `bandwidth` in bytes a second, `latency` in seconds.
struct LinkAbout {
  double bandwidth, latency;
  std::int32_t channels, by_priority;
};

class Link : public Policy {
 public:
  // Per task: `bytes` to transfer, and `priority`.
  Link(const LinkAbout& about, const double* bytes, const double* priority)
      : about_(about), bytes_(bytes), priority_(priority) {}

  void ready(int task) override { queue_.push_back(task); }

  void finished(int, double) override { --travelling_; }

  void dispatch(double, std::vector<Start>* out) override {
    while (travelling_ < about_.channels && !queue_.empty()) {
      auto next = queue_.begin();
      if (about_.by_priority)
        next = std::min_element(queue_.begin(), queue_.end(),
                                [&](int a, int b) { return priority_[a] < priority_[b]; });
      ++travelling_;
      out->push_back({*next, about_.latency + bytes_[*next] / about_.bandwidth, true});
      queue_.erase(next);
    }
  }

  void rates(const std::vector<int>& running, std::vector<double>* rate) override {
    std::fill(rate->begin(), rate->end(), 1.0 / static_cast<double>(running.size()));
  }

 private:
  LinkAbout about_;
  const double *bytes_, *priority_;
  std::vector<int> queue_;  // in the order in which they came
  int travelling_ = 0;
};

}  // namespace dltune::sim
