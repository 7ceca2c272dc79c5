// Links between hosts, alone or as a network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine.h"

namespace dltune::sim {

// A link between hosts: transfers take its latency and their bytes at its bandwidth. At most
// `channels` travel at once and share it evenly; who is next is the first that came, or of those
// that wait the one with the lowest priority number.

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

// Links of hosts, one out and one in each (full duplex), and the channels between hosts that use
// them. A channel has one transfer under way: of those that wait, the one with the lowest priority
// number, and of equal ones the first that came. Channels under way at once share the links max-min
// fairly: none could be faster without making one slower that is no faster than it.

// By channel, the host that sends and the one that receives.
struct NetworkAbout {
  const std::int32_t *sender, *receiver;
  std::int32_t channels, hosts;
};

class Network : public Policy {
 public:
  // Per task: its resource, from `first` on a channel; the `seconds` that it takes where it shares
  // no link; and `priority`.
  Network(const NetworkAbout& about, const std::int32_t* where, int first, const double* seconds,
          const double* priority)
      : about_(about), where_(where), first_(first), seconds_(seconds), priority_(priority),
        waiting_(about.channels), busy_(about.channels), share_(about.channels) {}

  void ready(int task) override {
    waiting_[channel(task)].push_back(task);
    free_.push_back(channel(task));
  }

  void finished(int task, double) override {
    busy_[channel(task)] = false;
    free_.push_back(channel(task));
    changed_ = true;
  }

  void dispatch(double, std::vector<Start>* out) override {
    for (int c : free_) {
      auto& queue = waiting_[c];
      if (busy_[c] || queue.empty()) continue;
      auto next = std::min_element(queue.begin(), queue.end(),
                                   [&](int a, int b) { return priority_[a] < priority_[b]; });
      out->push_back({*next, seconds_[*next], true});
      queue.erase(next);
      busy_[c] = changed_ = true;
    }
    free_.clear();
  }

  void rates(const std::vector<int>& running, std::vector<double>* rate) override {
    if (changed_) fill();
    changed_ = false;
    for (std::size_t i = 0; i < running.size(); ++i) (*rate)[i] = share_[channel(running[i])];
  }

 private:
  int channel(int task) const { return where_[task] - first_; }

  // Progressive filling: all grow alike until a link is full, whose channels then have their share.
  void fill() {
    const int hosts = about_.hosts;
    std::vector<double> room(2 * hosts, 1.0);
    std::vector<int> users(2 * hosts, 0), open;
    for (int c = 0; c < about_.channels; ++c)
      if (busy_[c]) {
        open.push_back(c);
        ++users[about_.sender[c]], ++users[hosts + about_.receiver[c]];
      }
    while (!open.empty()) {
      double least = std::numeric_limits<double>::infinity();
      for (int l = 0; l < 2 * hosts; ++l)
        if (users[l]) least = std::min(least, room[l] / users[l]);
      std::vector<char> full(2 * hosts);
      for (int l = 0; l < 2 * hosts; ++l)
        full[l] = users[l] && room[l] / users[l] <= least * (1 + 1e-12);
      std::size_t kept = 0;
      for (int c : open) {
        const int from = about_.sender[c], to = hosts + about_.receiver[c];
        if (!full[from] && !full[to]) {
          open[kept++] = c;
          continue;
        }
        share_[c] = least;
        for (int l : {from, to}) room[l] -= least, --users[l];
      }
      open.resize(kept);
    }
  }

  const NetworkAbout about_;
  const std::int32_t* where_;
  const int first_;
  const double *seconds_, *priority_;
  std::vector<std::vector<int>> waiting_;  // by channel, in the order in which they came
  std::vector<char> busy_;
  std::vector<double> share_;
  std::vector<int> free_;  // channels on which one may start
  bool changed_ = false;
};

}  // namespace dltune::sim
