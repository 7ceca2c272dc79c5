// The simulator's one engine: a DAG of tasks, each with a duration, dispatched by a policy.
//
// Event-driven and rate-based. A policy says which ready tasks start and how fast each running one
// advances (1: as fast as its duration says; less where tasks share what they run on). Resources
// are the policy's own business: cores, a network channel, devices, a copy engine.
//
// Deterministic: tasks become ready in the order in which their last inputs ended, and those of one
// end in the order of the edges; tasks that end together do so in the order they were started.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dltune::sim {

// Work left below this, in seconds, is done: far below any clock, far above rounding.
constexpr double kDone = 1e-12;

// Successors of task t: edges[offsets[t]] .. edges[offsets[t + 1] - 1].
struct Graph {
  std::int32_t tasks;
  const std::int32_t* offsets;
  const std::int32_t* edges;
};

// `seconds`: the task's time at rate 1. `counted`: it is an op in flight for Fig. 4.
struct Start {
  int task;
  double seconds;
  bool counted;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual void ready(int task) = 0;
  virtual void finished(int task, double now) = 0;
  // Appends what starts at `now`. Called again after tasks without duration have ended.
  virtual void dispatch(double now, std::vector<Start>* out) = 0;
  // rate[i] is for running[i], in the order of their starts.
  virtual void rates(const std::vector<int>& running, std::vector<double>* rate) = 0;
};

// Where the results go: per task its start and end in seconds, NaN-free when `done` equals tasks.
struct Timeline {
  double* start;
  double* end;
  double makespan;
  // Mean ops in flight over the events (an op starts or ends), each counted when all that happens
  // at its moment has happened: ops that follow one another are one in flight.
  double corunning;
  std::int32_t done;  // fewer than tasks: a cycle
};

inline void run(const Graph& graph, Policy& policy, Timeline* out) {
  std::vector<int> waits(graph.tasks, 0);
  for (int e = 0; e < graph.offsets[graph.tasks]; ++e) ++waits[graph.edges[e]];

  std::vector<int> running;
  std::vector<double> left, rate;
  std::vector<char> counted(graph.tasks, 0);
  std::vector<Start> starts;
  double now = 0, sampled = 0;
  out->done = 0;
  long events = 0, flying = 0, fresh = 0;
  auto end = [&](int task) {
    out->end[task] = now;
    ++out->done;
    if (counted[task]) --flying, ++fresh;
    policy.finished(task, now);
    for (int e = graph.offsets[task]; e < graph.offsets[task + 1]; ++e)
      if (--waits[graph.edges[e]] == 0) policy.ready(graph.edges[e]);
  };

  for (int t = 0; t < graph.tasks; ++t)
    if (waits[t] == 0) policy.ready(t);
  for (;;) {
    for (bool again = true; again;) {
      again = false;
      starts.clear();
      policy.dispatch(now, &starts);
      for (const Start& s : starts) {
        out->start[s.task] = now;
        counted[s.task] = s.counted;
        if (s.counted) ++flying, ++fresh;
        if (s.seconds > kDone) {
          running.push_back(s.task);
          left.push_back(s.seconds);
        }
      }
      for (const Start& s : starts)
        if (!(s.seconds > kDone)) end(s.task), again = true;
    }
    events += fresh;
    sampled += static_cast<double>(fresh * flying);
    fresh = 0;
    if (running.empty()) break;

    rate.resize(running.size());
    policy.rates(running, &rate);
    double step = left[0] / rate[0];
    for (std::size_t i = 1; i < running.size(); ++i) step = std::min(step, left[i] / rate[i]);
    now += step;
    std::size_t kept = 0;
    starts.clear();
    for (std::size_t i = 0; i < running.size(); ++i) {
      const double remaining = left[i] - step * rate[i];
      if (remaining <= kDone) {
        starts.push_back({running[i], 0, false});  // ends once all have advanced
      } else {
        running[kept] = running[i];
        left[kept++] = remaining;
      }
    }
    running.resize(kept);
    left.resize(kept);
    for (const Start& s : starts) end(s.task);
  }
  out->makespan = now;
  out->corunning = events ? sampled / static_cast<double>(events) : 0;
}

// Several resources under one graph: each task belongs to one of them, which starts it and says how
// fast it advances beside the others there.

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
