// The best strategy there is: strategies that begin alike are left out together once none of them can
// beat the best one known (best first, as A*; the paper, section 8.4, searches depth first).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <queue>
#include <vector>

#include "beginning.h"
#include "simulation.h"

namespace dltune::parallelism {

// It ends after `seconds`, or with so many `nodes` kept. `known`: ns of a strategy that is to be beaten
// (0: that of the one given).
struct Limits {
  double seconds;
  std::int64_t nodes, known;
};

// `best`: ns of the best strategy found, which is the best of all where `bound`, that none is faster
// than, is as long. `nodes`: beginnings of strategies that were bounded; `leaves`: strategies simulated.
struct Proof {
  std::int64_t best, bound, nodes, leaves;
  double seconds;
};

class BranchAndBound {
 public:
  BranchAndBound(TaskGraph* graph, Simulation* simulation, int combined)
      : graph_(*graph), simulation_(*simulation), beginning_(*graph, combined) {}

  // `best`: a strategy, which becomes the best found if one is found.
  Proof run(const Limits& limits, std::int32_t* best) {
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const Problem& problem = graph_.problem();
    std::vector<std::int32_t>& choice = beginning_.choice;
    graph_.set(best);
    Proof proof{limits.known ? limits.known : simulation_.run(), 0, 0, 0, 0};
    nodes_.assign(1, {beginning_.bound(), -1, -1, 0});
    std::priority_queue<Open> open;
    open.push({nodes_[0].bound, 0, 0});
    proof.bound = proof.best;
    while (!open.empty() && open.top().bound < proof.best) {
      if (elapsed() >= limits.seconds || static_cast<std::int64_t>(nodes_.size()) >= limits.nodes) {
        proof.bound = open.top().bound;
        break;
      }
      const Open top = open.top();
      open.pop();
      for (std::int32_t at = top.node; nodes_[at].depth > 0; at = nodes_[at].parent)
        choice[nodes_[at].depth - 1] = nodes_[at].choice;
      if (top.depth == problem.operators) {
        ++proof.leaves;
        graph_.set(choice.data());
        if (const std::int64_t time = simulation_.run(proof.best); time < proof.best) {
          proof.best = time;
          std::copy(choice.begin(), choice.end(), best);
        }
        continue;
      }
      for (int o = 0; o < top.depth; ++o) beginning_.forward(o);
      for (int c = 0; c < problem.operator_[top.depth].configurations; ++c) {
        ++proof.nodes;
        choice[top.depth] = c;
        beginning_.forward(top.depth);
        const std::int64_t bound = std::max(top.bound, beginning_.bound(top.depth + 1, proof.best));
        if (bound >= proof.best) continue;
        open.push({bound, top.depth + 1, static_cast<std::int32_t>(nodes_.size())});
        nodes_.push_back({bound, top.node, c, top.depth + 1});
      }
    }
    proof.bound = std::min(proof.bound, proof.best);
    proof.seconds = elapsed();
    graph_.set(best);
    return proof;
  }

 private:
  struct Node {
    std::int64_t bound;
    std::int32_t parent, choice, depth;
  };
  struct Open {
    std::int64_t bound;
    std::int32_t depth, node;
    bool operator<(const Open& other) const {
      return bound != other.bound ? bound > other.bound : depth < other.depth;
    }
  };
  TaskGraph& graph_;
  Simulation& simulation_;
  Beginning beginning_;
  std::vector<Node> nodes_;
};

}  // namespace dltune::parallelism
