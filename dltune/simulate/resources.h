// Several resources under one graph: each task belongs to one of them, which starts it and says how
// fast it advances beside the others there.
#pragma once

#include <vector>

#include "engine.h"

namespace dltune::sim {

class Resources : public Policy {
 public:
  // `where[t]`: the index of task t's resource.
  Resources(const std::int32_t* where, std::vector<Policy*> each)
      : where_(where), each_(std::move(each)), running_(each_.size()), rate_(each_.size()) {}

  void ready(int task) override { each_[where_[task]]->ready(task); }

  void finished(int task, double now) override { each_[where_[task]]->finished(task, now); }

  void dispatch(double now, std::vector<Start>* out) override {
    for (Policy* one : each_) one->dispatch(now, out);
  }

  void rates(const std::vector<int>& running, std::vector<double>* rate) override {
    for (auto& mine : running_) mine.clear();
    for (int task : running) running_[where_[task]].push_back(task);
    for (std::size_t r = 0; r < each_.size(); ++r) {
      rate_[r].resize(running_[r].size());
      if (!running_[r].empty()) each_[r]->rates(running_[r], &rate_[r]);
    }
    std::vector<std::size_t> next(each_.size(), 0);
    for (std::size_t i = 0; i < running.size(); ++i) {
      const std::int32_t r = where_[running[i]];
      (*rate)[i] = rate_[r][next[r]++];
    }
  }

 private:
  const std::int32_t* where_;
  std::vector<Policy*> each_;
  std::vector<std::vector<int>> running_;  // per resource: its tasks among those that run
  std::vector<std::vector<double>> rate_;
};

}  // namespace dltune::sim
