// The tasks of a step under a strategy (paper, section 5.1), kept up as operators change theirs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "division.h"
#include "flow.h"
#include "synchronization.h"

namespace dltune::parallelism {

constexpr std::int64_t kMostPieces = 50'000'000;  // 32 bytes each, and as many kept aside

class TaskGraph {
 public:
  explicit TaskGraph(const Problem& problem)
      : problem_(problem),
        choice(problem.operators, 0),
        division(problem.operators),
        forward(problem.edges),
        backward(problem.edges),
        synchronization(problem.weights),
        busy(problem.resources, 0),
        incoming(problem.operators),
        outgoing(problem.operators),
        members_(problem.weights) {
    for (int e = 0; e < problem.edges; ++e) {
      outgoing[problem.edge[e].producer].push_back(e);
      incoming[problem.edge[e].consumer].push_back(e);
    }
    for (int o = 0; o < problem.operators; ++o)
      if (problem.operator_[o].weights >= 0) members_[problem.operator_[o].weights].push_back(o);
  }

  const Problem& problem() const { return problem_; }

  const Configuration& configuration(int op) const {
    return problem_.configuration[problem_.operator_[op].first_configuration + choice[op]];
  }

  // Nanoseconds of one task.
  std::int64_t duration(int op, int task, bool back) const {
    const std::int64_t at = problem_.operator_[op].first_time +
                            std::int64_t{choice[op]} * problem_.kinds +
                            problem_.kind[division[op].device(task)];
    return at_least_one(back ? problem_.backward[at] : problem_.forward[at]);
  }

  // Every operator anew; `choices`: the number of its configuration, for each.
  void set(const std::int32_t* choices) {
    std::fill(busy.begin(), busy.end(), 0);
    pieces_ = 0;
    stash_.clear();
    for (int o = 0; o < problem_.operators; ++o) {
      choice[o] = choices[o];
      division[o] = Division(problem_.operator_[o], configuration(o), problem_.devices);
      account(o, 1);
    }
    for (int e = 0; e < problem_.edges; ++e) {
      forward[e] = Flow();
      backward[e] = Flow();
    }
    for (int e = 0; e < problem_.edges && !too_large(); ++e) {
      build_edge(e);
      account_edge(e, 1);
    }
    for (int g = 0; g < problem_.weights; ++g) {
      build_group(g);
      account_group(g, 1);
    }
  }

  // These operators alone; what was there is kept for `take_back`, until the next change.
  void change(const std::vector<std::pair<std::int32_t, std::int32_t>>& changes) {
    stash_.clear();
    stashed_busy_ = busy;
    stashed_pieces_ = pieces_;
    affected(changes);
    stash_.flows.reserve(edges_.size());
    for (int e : edges_) {
      account_edge(e, -1);
      stash_.flows.emplace_back(std::move(forward[e]), std::move(backward[e]));
    }
    for (int g : groups_) {
      account_group(g, -1);
      stash_.synchronizations.push_back(std::move(synchronization[g]));
    }
    for (const auto& [op, to] : changes) {
      account(op, -1);
      stash_.divisions.push_back(std::move(division[op]));
      stash_.choices.push_back(choice[op]);
      choice[op] = to;
      division[op] = Division(problem_.operator_[op], configuration(op), problem_.devices);
      account(op, 1);
    }
    changes_ = changes;
    for (int e : edges_) {
      forward[e] = Flow();
      backward[e] = Flow();
    }
    for (int e : edges_) {
      if (too_large()) break;
      build_edge(e);
      account_edge(e, 1);
    }
    for (int g : groups_) {
      synchronization[g] = Synchronization();
      build_group(g);
      account_group(g, 1);
    }
  }

  // As before the last change.
  void take_back() {
    for (std::size_t n = 0; n < changes_.size(); ++n) {
      choice[changes_[n].first] = stash_.choices[n];
      division[changes_[n].first] = std::move(stash_.divisions[n]);
    }
    for (std::size_t n = 0; n < edges_.size(); ++n) {
      forward[edges_[n]] = std::move(stash_.flows[n].first);
      backward[edges_[n]] = std::move(stash_.flows[n].second);
    }
    for (std::size_t n = 0; n < groups_.size(); ++n)
      synchronization[groups_[n]] = std::move(stash_.synchronizations[n]);
    busy = stashed_busy_;
    pieces_ = stashed_pieces_;
    stash_.clear();
  }

  const std::vector<std::int32_t>& members(int group) const { return members_[group]; }

  // Whether there is no room for all that moves; then the graph is not whole, and must be set anew or
  // taken back before it is simulated.
  bool too_large() const { return pieces_ > kMostPieces; }

  // No order of the tasks ends before the resource with most to do has done it.
  std::int64_t load() const { return *std::max_element(busy.begin(), busy.end()); }

 private:
  const Problem& problem_;

 public:
  std::vector<std::int32_t> choice;
  std::vector<Division> division;
  std::vector<Flow> forward, backward;  // by edge
  std::vector<Synchronization> synchronization;
  std::vector<std::int64_t> busy;  // ns of each resource's tasks
  std::vector<std::vector<std::int32_t>> incoming, outgoing;  // edges, by operator

 private:
  struct Stash {
    std::vector<std::int32_t> choices;
    std::vector<Division> divisions;
    std::vector<std::pair<Flow, Flow>> flows;
    std::vector<Synchronization> synchronizations;
    void clear() {
      choices.clear();
      divisions.clear();
      flows.clear();
      synchronizations.clear();
    }
  };

  void affected(const std::vector<std::pair<std::int32_t, std::int32_t>>& changes) {
    edges_.clear();
    groups_.clear();
    for (const auto& [op, to] : changes) {
      edges_.insert(edges_.end(), incoming[op].begin(), incoming[op].end());
      edges_.insert(edges_.end(), outgoing[op].begin(), outgoing[op].end());
      if (problem_.operator_[op].weights >= 0) groups_.push_back(problem_.operator_[op].weights);
    }
    for (std::vector<std::int32_t>* all : {&edges_, &groups_}) {
      std::sort(all->begin(), all->end());
      all->erase(std::unique(all->begin(), all->end()), all->end());
    }
  }

  void build_edge(int e) {
    const Edge& edge = problem_.edge[e];
    const Division &from = division[edge.producer], &to = division[edge.consumer];
    forward[e].forward(problem_, edge, from, to);
    if (problem_.operator_[edge.producer].gradient) backward[e].backward(problem_, edge, from, to);
  }

  void build_group(int g) {
    std::vector<const Division*> group;
    for (int o : members_[g]) group.push_back(&division[o]);
    if (!group.empty()) synchronization[g].build(problem_, problem_.weight_bytes[g], group);
  }

  void account(int op, int sign) {
    const Division& own = division[op];
    for (int task = 0; task < own.tasks(); ++task)
      busy[own.device(task)] += sign * (duration(op, task, false) + duration(op, task, true));
  }

  void account_edge(int e, int sign) {
    for (const Flow* flow : {&forward[e], &backward[e]}) {
      pieces_ += sign * static_cast<std::int64_t>(flow->pieces().size());
      for (const Piece& piece : flow->pieces())
        if (piece.resource >= 0) busy[piece.resource] += sign * piece.duration;
    }
  }

  void account_group(int g, int sign) {
    const Synchronization& sync = synchronization[g];
    for (const Hop& hop : sync.hops) busy[hop.resource] += sign * hop.duration;
    for (const ShardSet& set : sync.sets)
      if (set.update)
        for (int device : set.devices) busy[device] += sign * set.update;
  }

  std::vector<std::vector<std::int32_t>> members_;  // operators, by weights
  std::vector<std::int32_t> edges_, groups_;
  std::vector<std::pair<std::int32_t, std::int32_t>> changes_;
  std::vector<std::int64_t> stashed_busy_;
  std::int64_t pieces_ = 0, stashed_pieces_ = 0;
  Stash stash_;
};

}  // namespace dltune::parallelism
