// Scheduling with strategies 3 and 4: ops pass the same admission code as in a job and hold their
// cores alone. Small ops are not admitted but run at once on the least loaded core, and ops that a
// plan has placed on the cores that it names: admission does not know of either.
#pragma once

#include <algorithm>
#include <vector>

#include "../native/corun.h"
#include "engine.h"

namespace dltune::sim {

// Per op. `admitted` false: a small op that runs `work.serial` seconds on one core, or, if it has
// `placed` cores, one that runs `work.choice.seconds` on these; detached: it holds neither a core
// nor a slot.
struct AdmissionOp {
  Work work;
  bool admitted;
  bool detached;
  std::vector<int> placed;
};

class Admitted : public Policy {
 public:
  Admitted(const std::int32_t* op, const double* runs, const AdmissionOp* ops, const int* tile,
           const int* hardware, int cores, int inter, double overhead, double crowding, Options options,
           int tasks)
      : op_(op), runs_(runs), ops_(ops), hardware_(hardware), cores_(cores), inter_(inter),
        overhead_(overhead), crowding_(crowding), options_(options), scheduler_(tile, hardware, cores, options),
        users_(cores, 0), places_(tasks), second_(tasks, 0) {}

  void ready(int task) override { (detached(task) ? free_ : queue_).push_back(task); }

  void finished(int task, double now) override {
    if (detached(task)) return;
    --slots_;
    for (int core : places_[task]) --users_[core];
    if (ops_[op_[task]].admitted) scheduler_.finished(static_cast<std::uint64_t>(task), now);
  }

  void dispatch(double now, std::vector<Start>* out) override {
    for (int task : free_)
      out->push_back({task, op_[task] < 0 ? 0 : ops_[op_[task]].work.serial * runs_[task], false});
    free_.clear();
    while (slots_ < inter_ && head_ < queue_.size()) {
      const int task = queue_[head_++];
      const AdmissionOp& op = ops_[op_[task]];
      ++slots_;
      if (op.admitted) {
        scheduler_.ready(static_cast<std::uint64_t>(task), times(op.work, runs_[task]));
        continue;
      }
      places_[task] = op.placed.empty() ? std::vector<int>{least_loaded()} : op.placed;
      for (int core : places_[task]) ++users_[core];
      const double seconds = op.placed.empty() ? op.work.serial : op.work.choice.seconds;
      out->push_back({task, (seconds + overhead_) * runs_[task], true});
    }
    admissions_.clear();
    scheduler_.decide(now, &admissions_);
    for (const Admission& a : admissions_) {
      const int task = static_cast<int>(a.ticket);
      a.cores.each([&](int core) {
        ++users_[core];
        places_[task].push_back(core);
      });
      second_[task] = a.second;
      const double seconds = a.second ? ops_[op_[task]].work.serial * runs_[task] : a.seconds;
      out->push_back({task, seconds + overhead_ * runs_[task], true});
    }
  }

  // A task advances at the mean of its shares of its cores: its parts are many, and are taken up
  // by whichever of its threads is free. Beside others it is slower by the factor `crowding`.
  void rates(const std::vector<int>& running, std::vector<double>* rate) override {
    int flying = 0;
    for (int task : running) flying += !detached(task);
    for (std::size_t i = 0; i < running.size(); ++i) {
      const int task = running[i];
      if (detached(task)) {
        (*rate)[i] = 1;
        continue;
      }
      double sum = 0;
      for (int core : places_[task]) sum += share(core);
      (*rate)[i] = sum / static_cast<double>(places_[task].size()) / (flying > 1 ? crowding_ : 1.0);
    }
  }

  const std::vector<int>& places(int task) const { return places_[task]; }
  bool second(int task) const { return second_[task] != 0; }

 private:
  bool detached(int task) const {
    return op_[task] < 0 || ops_[op_[task]].detached || runs_[task] <= 0;
  }

  int least_loaded() const {
    return static_cast<int>(std::min_element(users_.begin(), users_.end()) - users_.begin());
  }

  double share(int core) const {
    const int users = users_[core];
    if (users <= 1) return 1;
    return (hardware_[core] > 1 ? options_.smt_throughput : 1.0) / users;
  }

  static Work times(Work work, double runs) {
    work.serial *= runs;
    work.choice.seconds *= runs;
    for (int k = 0; k < work.count; ++k) work.candidates[k].seconds *= runs;
    return work;
  }

  const std::int32_t* op_;
  const double* runs_;
  const AdmissionOp* ops_;
  const int* hardware_;
  int cores_, inter_;
  double overhead_, crowding_;
  Options options_;
  Scheduler scheduler_;
  std::vector<int> users_;  // per core: tasks on it
  std::vector<std::vector<int>> places_;
  std::vector<char> second_;
  std::vector<int> queue_, free_;
  std::size_t head_ = 0;
  int slots_ = 0;
  std::vector<Admission> admissions_;
};

}  // namespace dltune::sim
