// The best strategy there is: strategies that begin alike are left out together once none of them can
// beat the best one known (best first, as A*; the paper, section 8.4, searches depth first).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "relaxation.h"
#include "simulation.h"

namespace dltune::parallelism {

// What all strategies that begin alike cannot be faster than.
class Beginning {
 public:
  // By operator; those of the first `depth` count.
  std::vector<std::int32_t> choice;

  Beginning(const TaskGraph& graph, int combined)
      : choice(graph.problem().operators, 0),
        graph_(graph),
        relaxed_(graph, combined),
        problem_(graph.problem()) {
    const int operators = problem_.operators;
    passes_.resize(operators);
    items_.resize(problem_.resources);
    for (int o = 0; o < operators; ++o) {
      int most = 0;
      for (int c = 0; c < problem_.operator_[o].configurations; ++c)
        most = std::max(most, relaxed_.division(o, c).tasks());
      passes_[o].resize(most);
    }
    // which groups are whole once so many operators have a configuration
    last_.assign(problem_.weights, -1);
    for (int g = 0; g < problem_.weights; ++g)
      for (int o : graph_.members(g)) last_[g] = std::max(last_[g], o);
    rest_.assign(operators + 1, 0);
    for (int o = operators - 1; o >= 0; --o) rest_[o] = rest_[o + 1] + relaxed_.least_work(o);
  }

  // Of every strategy.
  std::int64_t bound() const { return relaxed_.bound(); }

  // The producers of `op` have gone forwards.
  void forward(int op) {
    const int tasks = division(op).tasks();
    for (int t = 0; t < tasks; ++t) passes_[op][t].forward = 0;
    for (int e : graph_.incoming[op]) {
      const std::vector<Pass>& from = passes_[problem_.edge[e].producer];
      for (const auto& move : moves(e, false))
        passes_[op][move.to].forward =
            std::max(passes_[op][move.to].forward, from[move.from].forward + move.duration);
    }
    for (int t = 0; t < tasks; ++t) passes_[op][t].forward += duration(op, t, false);
  }

  // Of all strategies whose first `depth` operators are as chosen; any value from `enough` on is as good.
  std::int64_t bound(int depth, std::int64_t enough) {
    std::int64_t longest = backward(depth);
    if (longest >= enough) return longest;
    longest = std::max(longest, synchronized(depth));
    if (longest >= enough) return longest;
    after(depth);
    return std::max(longest, loads(depth));
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  // Of a task, at the earliest: when it ends forwards, begins and ends backwards; and what follows at
  // least after its end forwards and backwards.
  struct Pass {
    std::int64_t forward, ready, backward, after_forward, after_backward;
  };
  // On a resource: not before `head`, and `tail` passes after it.
  struct Item {
    std::int64_t head, work, tail;
  };

  const Division& division(int op) const { return relaxed_.division(op, choice[op]); }
  std::int64_t duration(int op, int task, bool back) const {
    return relaxed_.duration(op, choice[op], task, back);
  }
  const std::vector<Relaxation::Move>& moves(int edge, bool back) const {
    const Edge& own = problem_.edge[edge];
    return relaxed_.moves(edge, choice[own.producer], choice[own.consumer], back);
  }

  // The earliest backward tasks, and the longest way from any forward task through what is not chosen.
  std::int64_t backward(int depth) {
    std::int64_t longest = 0;
    for (int o = 0; o < depth; ++o)
      for (int t = 0; t < division(o).tasks(); ++t) passes_[o][t].ready = passes_[o][t].forward;
    for (int o = depth - 1; o >= 0; --o) {
      std::vector<Pass>& own = passes_[o];
      const int tasks = division(o).tasks();
      for (int e : graph_.outgoing[o]) {
        if (problem_.edge[e].consumer < depth) continue;
        for (int t = 0; t < tasks; ++t) {
          own[t].ready = std::max(own[t].ready, own[t].forward + relaxed_.back_by(e, choice[o], t));
          longest = std::max(longest, own[t].forward + relaxed_.ahead_by(e, choice[o], t));
        }
      }
      for (int t = 0; t < tasks; ++t) {
        own[t].backward = own[t].ready + duration(o, t, true);
        longest = std::max(longest, own[t].backward + relaxed_.added(o, choice[o], t));
      }
      for (int e : graph_.incoming[o]) {
        std::vector<Pass>& to = passes_[problem_.edge[e].producer];
        for (const auto& move : moves(e, true))
          to[move.to].ready = std::max(to[move.to].ready, own[move.from].backward + move.duration);
      }
    }
    return longest;
  }

  // What follows each task's end at least; `synchronized` has told the tasks how their gradients are
  // added up.
  void after(int depth) {
    for (int o = 0; o < depth; ++o)
      for (int e : graph_.incoming[o]) {
        const int producer = problem_.edge[e].producer;
        for (const auto& move : moves(e, true)) {
          std::int64_t& tail = passes_[o][move.from].after_backward;
          tail = std::max(tail, move.duration + duration(producer, move.to, true) +
                                    passes_[producer][move.to].after_backward);
        }
      }
    for (int o = depth - 1; o >= 0; --o) {
      std::vector<Pass>& own = passes_[o];
      for (int t = 0; t < division(o).tasks(); ++t) {
        const std::int64_t back = duration(o, t, true) + own[t].after_backward;
        own[t].after_forward = back;
        for (int e : graph_.outgoing[o])
          if (problem_.edge[e].consumer >= depth)
            own[t].after_forward =
                std::max({own[t].after_forward, relaxed_.back_by(e, choice[o], t) + back,
                          relaxed_.ahead_by(e, choice[o], t)});
      }
      for (int e : graph_.outgoing[o]) {
        const int consumer = problem_.edge[e].consumer;
        if (consumer >= depth) continue;
        for (const auto& move : moves(e, false))
          own[move.from].after_forward =
              std::max(own[move.from].after_forward,
                       move.duration + duration(consumer, move.to, false) +
                           passes_[consumer][move.to].after_forward);
      }
    }
  }

  // Begins the resources' work with gradients that are added up, for groups all of whose operators are
  // chosen; gives the longest way through these.
  std::int64_t synchronized(int depth) {
    for (std::vector<Item>& items : items_) items.clear();
    for (int o = 0; o < depth; ++o)
      for (int t = 0; t < division(o).tasks(); ++t)
        passes_[o][t].after_backward = relaxed_.added(o, choice[o], t);
    std::int64_t longest = 0;
    for (int g = 0; g < problem_.weights; ++g) {
      if (last_[g] < 0 || last_[g] >= depth) continue;
      const Synchronization* sync = relaxed_.synchronization(g, choice);
      if (!sync) continue;
      std::vector<std::int64_t> gone(problem_.devices, 0), tail(problem_.devices, 0);
      for (int o : graph_.members(g))
        for (int t = 0; t < division(o).tasks(); ++t) {
          std::int64_t& last = gone[division(o).device(t)];
          last = std::max(last, passes_[o][t].backward);
        }
      for (const ShardSet& set : sync->sets) {
        const std::int64_t between = sync->longest(set.hops, set.hops_end);
        std::int64_t ready = 0;
        for (int h = set.hosts; h < set.hosts_end; ++h) {
          const OnHost& host = sync->hosts[h];
          const std::int64_t rest = sync->rest(set, host);
          std::int64_t head = 0;
          for (int at = host.first; at < host.last; ++at) {
            head = std::max(head, gone[set.devices[at]]);
            tail[set.devices[at]] = std::max(tail[set.devices[at]], rest);
          }
          for (int hop = host.hops; hop < host.hops_end; ++hop)
            items_[sync->hops[hop].resource].push_back(
                {head, sync->hops[hop].duration, between + set.update});
          ready = std::max(ready, head + rest - between - set.update);
        }
        for (int hop = set.hops; hop < set.hops_end; ++hop)
          items_[sync->hops[hop].resource].push_back({ready, sync->hops[hop].duration, set.update});
        if (set.update)
          for (int device : set.devices) items_[device].push_back({ready + between, set.update, 0});
        longest = std::max(longest, ready + between + set.update);
      }
      for (int o : graph_.members(g))
        for (int t = 0; t < division(o).tasks(); ++t)
          passes_[o][t].after_backward = tail[division(o).device(t)];
    }
    return longest;
  }

  // Each resource's work between heads and tails; and all work on all devices.
  std::int64_t loads(int depth) {
    for (int o = 0; o < depth; ++o) {
      for (int t = 0; t < division(o).tasks(); ++t) {
        const Pass& own = passes_[o][t];
        std::vector<Item>& device = items_[division(o).device(t)];
        const std::int64_t work = duration(o, t, false);
        device.push_back({own.forward - work, work, own.after_forward});
        device.push_back({own.ready, own.backward - own.ready, own.after_backward});
      }
      for (int e : graph_.incoming[o]) {
        const int producer = problem_.edge[e].producer;
        for (const auto& move : moves(e, false))
          if (move.resource >= 0)
            items_[move.resource].push_back(
                {passes_[producer][move.from].forward, move.duration,
                 duration(o, move.to, false) + passes_[o][move.to].after_forward});
        for (const auto& move : moves(e, true))
          if (move.resource >= 0)
            items_[move.resource].push_back(
                {passes_[o][move.from].backward, move.duration,
                 duration(producer, move.to, true) + passes_[producer][move.to].after_backward});
      }
    }
    std::int64_t all = rest_[depth], longest = 0;
    for (int resource = 0; resource < problem_.resources; ++resource) {
      if (resource < problem_.devices)
        for (const Item& item : items_[resource]) all += item.work;
      longest = std::max(longest, preempted(&items_[resource]));
    }
    return std::max(longest, (all + problem_.devices - 1) / problem_.devices);
  }

  // The shortest that one resource can take when work may be interrupted: always that with the longest
  // tail (Jackson's rule; Carlier, "The one-machine sequencing problem", 1982).
  std::int64_t preempted(std::vector<Item>* items) {
    std::sort(items->begin(), items->end(),
              [](const Item& a, const Item& b) { return a.head < b.head; });
    std::priority_queue<std::pair<std::int64_t, std::int64_t>> waiting;  // tail, work
    std::int64_t time = 0, longest = 0;
    for (std::size_t next = 0; next < items->size() || !waiting.empty();) {
      if (waiting.empty()) time = std::max(time, (*items)[next].head);
      for (; next < items->size() && (*items)[next].head <= time; ++next)
        waiting.emplace((*items)[next].tail, (*items)[next].work);
      const auto [tail, work] = waiting.top();
      waiting.pop();
      const std::int64_t until = next < items->size() ? (*items)[next].head : kNever;
      if (work <= until - time) {
        time += work;
        longest = std::max(longest, time + tail);
      } else {
        waiting.emplace(tail, work - (until - time));
        time = until;
      }
    }
    return longest;
  }

  const TaskGraph& graph_;
  const Relaxation relaxed_;
  const Problem& problem_;
  std::vector<std::vector<Pass>> passes_;  // by operator and task
  std::vector<std::vector<Item>> items_;   // by resource
  std::vector<int> last_;                  // by weights the last operator that learns them
  std::vector<std::int64_t> rest_;         // work of the operators from each on
};

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
