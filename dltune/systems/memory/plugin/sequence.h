// In what order the nodes of a graph are to run, some of them several times, and which tensors leave
// memory in between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dltune {

// What comes next: `node` runs; the tensor that it gives out at `slot` leaves, once what ran before
// has; the next that runs waits until tensor `number` of those that leave has left; that comes back.
// `urgency`: of the copy.
struct Move {
  enum Kind { kRun, kOffload, kOffloaded, kPrefetch } kind;
  std::string node;
  int slot = 0, number = 0;
  int64_t urgency = 0;
};

// As dltune has ordered it; none: there is no order for the graph.
std::vector<Move> SequenceOf(const std::string& signature);

}  // namespace dltune
