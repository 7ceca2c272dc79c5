// TensorFlow's own scheduling: ready ops run first in, first out in `inter` executor slots, each
// divided among intra-op threads that the operating system places.
#pragma once

#include <vector>

#include "engine.h"

namespace dltune::sim {

// Per op: its seconds, how many cores it keeps busy on average (0: it holds neither a core nor a
// slot, like an asynchronous kernel), and its threads.
struct FifoOp {
  double seconds;
  double busy;
  std::int32_t threads;
};

// `oversubscription`: the further slow-down per thread above the number of cores, relative to that
// number. `crowding`: the factor by which ops are slower that run side by side, each on cores of
// its own.
struct FifoAbout {
  const FifoOp* ops;
  std::int32_t cores, inter;
  double overhead, oversubscription, crowding;
};

// Ops whose busy cores exceed the machine's share it (processor sharing).
class Fifo : public Policy {
 public:
  // Per task: the index of its `op`, and how often it `runs` it.
  Fifo(const FifoAbout& about, const std::int32_t* op, const double* runs)
      : about_(about), op_(op), runs_(runs) {}

  void ready(int task) override {
    (detached(task) ? free_ : queue_).push_back(task);
  }

  void finished(int task, double) override {
    if (!detached(task)) --running_;
  }

  void dispatch(double, std::vector<Start>* out) override {
    for (int task : free_)
      out->push_back({task, op_[task] < 0 ? 0 : about_.ops[op_[task]].seconds * runs_[task], false});
    free_.clear();
    while (running_ < about_.inter && head_ < queue_.size()) {
      const int task = queue_[head_++];
      const FifoOp& op = about_.ops[op_[task]];
      ++running_;
      out->push_back({task, (op.seconds + about_.overhead) * runs_[task], true});
    }
  }

  void rates(const std::vector<int>& running, std::vector<double>* rate) override {
    double busy = 0;
    long threads = 0;
    for (int task : running)
      if (!detached(task)) {
        busy += busy_(about_.ops[op_[task]]);
        threads += about_.ops[op_[task]].threads;
      }
    const double excess = std::max(0.0, static_cast<double>(threads) / about_.cores - 1);
    const bool beside = running_ > 1 && busy <= about_.cores * (1 + 1e-9);
    const double all = std::min(1.0, busy > 0 ? about_.cores / busy : 1.0) /
                       (1 + about_.oversubscription * excess) / (beside ? about_.crowding : 1.0);
    for (std::size_t i = 0; i < running.size(); ++i)
      (*rate)[i] = detached(running[i]) ? 1 : all;
  }

 private:
  // Over the op and what the executor spends on it, which keeps one core.
  double busy_(const FifoOp& op) const {
    const double all = op.seconds + about_.overhead;
    return all > 0 ? (op.busy * op.seconds + about_.overhead) / all : op.busy;
  }

  bool detached(int task) const {
    return op_[task] < 0 || about_.ops[op_[task]].busy <= 0 || runs_[task] <= 0;
  }

  const FifoAbout about_;
  const std::int32_t* op_;
  const double* runs_;
  std::vector<int> queue_, free_;
  std::size_t head_ = 0;
  int running_ = 0;
};

}  // namespace dltune::sim
