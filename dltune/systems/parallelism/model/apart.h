// What operators and edges take each by itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flow.h"
#include "synchronization.h"

namespace dltune::parallelism {

// Each resource does its own one by one: the busiest takes the longest.
class Busy {
 public:
  explicit Busy(const Problem& problem) : busy_(problem.resources, 0) {}
  void add(std::int32_t resource, std::int64_t duration) {
    if (resource >= 0) busy_[resource] += duration;
  }
  // And begins anew.
  std::int64_t longest() {
    const std::int64_t found = *std::max_element(busy_.begin(), busy_.end());
    std::fill(busy_.begin(), busy_.end(), 0);
    return found;
  }

 private:
  std::vector<std::int64_t> busy_;
};

// The tasks of an operator forwards and backwards, and of its gradients that are added up, if no other
// operator learned with it, one in `members`.
inline std::int64_t alone(const Problem& problem, const Operator& op, int choice, int members) {
  const Division own(op, problem.configuration[op.first_configuration + choice], problem.devices);
  Busy busy(problem);
  for (int t = 0; t < own.tasks(); ++t) {
    const std::int64_t at =
        op.first_time + std::int64_t{choice} * problem.kinds + problem.kind[own.device(t)];
    busy.add(own.device(t), at_least_one(problem.forward[at]) + at_least_one(problem.backward[at]));
  }
  std::int64_t all = busy.longest();
  if (op.weights < 0) return all;
  Synchronization sync;
  sync.build(problem, problem.weight_bytes[op.weights], {&own});
  std::int64_t added = 0;
  for (const ShardSet& set : sync.sets)
    for (int h = set.hosts; h < set.hosts_end; ++h)
      for (int hop = sync.hosts[h].hops; hop < sync.hosts[h].hops_end; ++hop)
        busy.add(sync.hops[hop].resource, sync.hops[hop].duration);
  added += busy.longest();
  for (const ShardSet& set : sync.sets)
    for (int hop = set.hops; hop < set.hops_end; ++hop)
      busy.add(sync.hops[hop].resource, sync.hops[hop].duration);
  added += busy.longest();
  for (const ShardSet& set : sync.sets)
    for (int device : set.devices) busy.add(device, set.update);
  return all + (added + busy.longest()) / members;
}

// How long the weights that only this operator learns take from the end of one of its backward tasks on,
// of that after which they take least.
inline std::int64_t added(const Problem& problem, const Operator& op, int choice) {
  const Division own(op, problem.configuration[op.first_configuration + choice], problem.devices);
  Synchronization sync;
  sync.build(problem, problem.weight_bytes[op.weights], {&own});
  std::vector<std::int64_t> on(problem.devices, 0);
  for (const ShardSet& set : sync.sets)
    for (int h = set.hosts; h < set.hosts_end; ++h)
      for (int at = sync.hosts[h].first; at < sync.hosts[h].last; ++at)
        on[set.devices[at]] = std::max(on[set.devices[at]], sync.rest(set, sync.hosts[h]));
  std::int64_t least = on[own.device(0)];
  for (int t = 0; t < own.tasks(); ++t) least = std::min(least, on[own.device(t)]);
  return least;
}

// What an edge moves, forwards and then backwards.
inline std::int64_t moved(const Problem& problem, const Edge& edge, const Division& producer,
                          const Division& consumer, Busy* busy) {
  Flow flow;
  flow.forward(problem, edge, producer, consumer);
  for (const Piece& piece : flow.pieces()) busy->add(piece.resource, piece.duration);
  const std::int64_t forward = busy->longest();
  if (!problem.operator_[edge.producer].gradient) return forward;
  flow.backward(problem, edge, producer, consumer);
  for (const Piece& piece : flow.pieces()) busy->add(piece.resource, piece.duration);
  return forward + busy->longest();
}

}  // namespace dltune::parallelism
