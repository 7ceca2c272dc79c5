// What no strategy that begins so can be faster than: the longest way through the tasks if none waited
// for a resource, and each resource's work between the earliest that it can begin and what must follow.
//
// Every order of the tasks keeps their predecessors and has each resource run one task at a time; first
// in, first out is one of them, so what bounds all of them bounds it. The way through operators that
// have no configuration yet is the shortest over their configurations, for each edge by itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "task_graph.h"

namespace dltune::parallelism {

class Relaxation {
 public:
  // From a task to a task of another operator; `resource` is -1 where both are on one device.
  struct Move {
    std::int32_t from, to, resource;
    std::int64_t duration;
  };

  // `combined`: groups of weights are looked at as a whole up to so many combinations of configurations
  // of their operators.
  Relaxation(const TaskGraph& graph, int combined) : graph_(graph), problem_(graph.problem()) {
    const int operators = problem_.operators;
    first_.resize(operators);
    divisions_.resize(operators);
    std::size_t tasks = 0;
    for (int o = 0; o < operators; ++o) {
      const Operator& op = problem_.operator_[o];
      std::int64_t least = kNever;
      for (int c = 0; c < op.configurations; ++c) {
        divisions_[o].emplace_back(op, problem_.configuration[op.first_configuration + c],
                                   problem_.devices);
        first_[o].push_back(tasks);
        tasks += divisions_[o].back().tasks();
        std::int64_t work = 0;
        for (int t = 0; t < divisions_[o].back().tasks(); ++t)
          work += duration(o, c, t, false) + duration(o, c, t, true);
        least = std::min(least, work);
      }
      least_work_.push_back(least);
    }
    added_.assign(tasks, 0);
    there_and_back_.assign(tasks, 0);
    ahead_.assign(tasks, 0);
    move();
    combine(combined);
    for (int o = operators - 1; o >= 0; --o) look_ahead(o);
  }

  const Problem& problem() const { return problem_; }
  const TaskGraph& graph() const { return graph_; }
  const Division& division(int op, int choice) const { return divisions_[op][choice]; }

  std::int64_t duration(int op, int choice, int task, bool back) const {
    const std::int64_t at = problem_.operator_[op].first_time +
                            std::int64_t{choice} * problem_.kinds +
                            problem_.kind[divisions_[op][choice].device(task)];
    return at_least_one(back ? problem_.backward[at] : problem_.forward[at]);
  }

  const std::vector<Move>& moves(int edge, int producer, int consumer, bool back) const {
    const Operator& reads = problem_.operator_[problem_.edge[edge].consumer];
    const Table& table = tables_[table_[edge]];
    return (back ? table.backward : table.forward)[producer * reads.configurations + consumer];
  }

  // By the operators' choices; null where there are too many to look at them all.
  const Synchronization* synchronization(int group, const std::vector<std::int32_t>& choice) const {
    const std::vector<Synchronization>& all = synchronization_[group];
    return all.empty() ? nullptr : &all[combination(group, choice)];
  }

  // How long after the task of this place the gradients of its operator are added up, at least.
  std::int64_t added(int op, int choice, int task) const { return added_[first_[op][choice] + task]; }
  // From the end of a task to the beginning of its backward task, by way of this edge's consumer.
  std::int64_t back_by(int edge, int choice, int task) const { return return_[edge][at(edge, choice, task)]; }
  // From the end of a task to the end of all that follows by way of this edge's consumer.
  std::int64_t ahead_by(int edge, int choice, int task) const { return onward_[edge][at(edge, choice, task)]; }
  // The work of all tasks of an operator, at least.
  std::int64_t least_work(int op) const { return least_work_[op]; }

  // Of every strategy: the longest way from any operator, and all work on all devices alike.
  std::int64_t bound() const {
    std::int64_t longest = 0, work = 0;
    for (int o = 0; o < problem_.operators; ++o) {
      work += least_work_[o];
      std::int64_t least = kNever;
      for (int c = 0; c < problem_.operator_[o].configurations; ++c) {
        const std::int64_t* here = &ahead_[first_[o][c]];
        least = std::min(least, *std::max_element(here, here + divisions_[o][c].tasks()));
      }
      longest = std::max(longest, least);
    }
    return std::max(longest, (work + problem_.devices - 1) / problem_.devices);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  // Of edges alike, by the producer's and the consumer's configurations.
  struct Table {
    std::vector<std::vector<Move>> forward, backward;
  };

  std::size_t at(int edge, int choice, int task) const {
    const auto& first = first_[problem_.edge[edge].producer];
    return first[choice] - first[0] + task;
  }

  void move() {
    std::map<std::vector<std::int32_t>, int> alike;
    for (int e = 0; e < problem_.edges; ++e) {
      const Edge& edge = problem_.edge[e];
      const Operator &given = problem_.operator_[edge.producer],
                     &reads = problem_.operator_[edge.consumer];
      std::vector<std::int32_t> key = {given.first_configuration, given.element, given.gradient,
                                       reads.first_configuration};
      key.insert(key.end(), given.size, given.size + kDimensions);
      key.insert(key.end(), reads.size, reads.size + kDimensions);
      for (const Region& r : edge.regions) key.insert(key.end(), {r.extent, r.of, r.stride, r.start});
      const auto [place, fresh] = alike.emplace(key, static_cast<int>(tables_.size()));
      table_.push_back(place->second);
      if (!fresh) continue;
      Table table;
      for (const Division& from : divisions_[edge.producer])
        for (const Division& to : divisions_[edge.consumer]) {
          Flow flow;
          flow.forward(problem_, edge, from, to);
          table.forward.push_back(moves(flow));
          flow = Flow();
          if (given.gradient) flow.backward(problem_, edge, from, to);
          table.backward.push_back(moves(flow));
        }
      tables_.push_back(std::move(table));
    }
  }

  static std::vector<Move> moves(const Flow& flow) {
    std::vector<Move> found;
    found.reserve(flow.pieces().size());
    for (const Piece& piece : flow.pieces())
      found.push_back({piece.from, piece.to, piece.resource, piece.duration});
    return found;
  }

  std::size_t combination(int group, const std::vector<std::int32_t>& choice) const {
    std::size_t at = 0;
    for (int o : graph_.members(group))
      at = at * problem_.operator_[o].configurations + choice[o];
    return at;
  }

  // Every combination of a group's configurations; to each task the least of those that its own is in.
  void combine(int most) {
    synchronization_.resize(problem_.weights);
    for (int g = 0; g < problem_.weights; ++g) {
      const std::vector<std::int32_t>& members = graph_.members(g);
      std::int64_t count = members.empty() ? 0 : 1;
      for (int o : members) count = std::min<std::int64_t>(most + 1, count * problem_.operator_[o].configurations);
      if (count == 0 || count > most) continue;
      for (int o : members)
        std::fill_n(added_.begin() + first_[o][0], tasks(o), kNever);
      std::vector<std::int32_t> choice(problem_.operators, 0);
      std::vector<std::int64_t> on(problem_.devices);
      synchronization_[g].resize(count);
      for (std::int64_t n = 0; n < count; ++n) {
        std::int64_t rest = n;
        for (auto o = members.rbegin(); o != members.rend(); ++o) {
          choice[*o] = static_cast<std::int32_t>(rest % problem_.operator_[*o].configurations);
          rest /= problem_.operator_[*o].configurations;
        }
        std::vector<const Division*> divided;
        for (int o : members) divided.push_back(&divisions_[o][choice[o]]);
        Synchronization& sync = synchronization_[g][n];
        sync.build(problem_, problem_.weight_bytes[g], divided);
        std::fill(on.begin(), on.end(), 0);
        for (const ShardSet& set : sync.sets)
          for (int h = set.hosts; h < set.hosts_end; ++h)
            for (int at = sync.hosts[h].first; at < sync.hosts[h].last; ++at)
              on[set.devices[at]] = std::max(on[set.devices[at]], sync.rest(set, sync.hosts[h]));
        for (int o : members)
          for (int t = 0; t < divisions_[o][choice[o]].tasks(); ++t) {
            std::int64_t& least = added_[first_[o][choice[o]] + t];
            least = std::min(least, on[divisions_[o][choice[o]].device(t)]);
          }
      }
    }
  }

  std::size_t tasks(int op) const {
    return first_[op].back() + divisions_[op].back().tasks() - first_[op][0];
  }

  void look_ahead(int op) {
    return_.resize(problem_.edges);
    onward_.resize(problem_.edges);
    for (int e : graph_.outgoing[op]) by(e);
    for (int c = 0; c < problem_.operator_[op].configurations; ++c)
      for (int t = 0; t < divisions_[op][c].tasks(); ++t) {
        std::int64_t back = 0, onward = 0;
        for (int e : graph_.outgoing[op]) {
          back = std::max(back, back_by(e, c, t));
          onward = std::max(onward, ahead_by(e, c, t));
        }
        const std::size_t at = first_[op][c] + t;
        const std::int64_t own = duration(op, c, t, false);
        there_and_back_[at] = own + back + duration(op, c, t, true);
        ahead_[at] = std::max(there_and_back_[at] + added_[at], own + onward);
      }
  }

  void by(int e) {
    const int from = problem_.edge[e].producer, to = problem_.edge[e].consumer;
    return_[e].assign(tasks(from), 0);
    onward_[e].assign(tasks(from), 0);
    const int choices = problem_.operator_[to].configurations;
    std::vector<std::int64_t> back, onward, home;
    for (int a = 0; a < problem_.operator_[from].configurations; ++a) {
      const int own = divisions_[from][a].tasks();
      std::int64_t *least_back = &return_[e][at(e, a, 0)], *least_onward = &onward_[e][at(e, a, 0)];
      for (int b = 0; b < choices; ++b) {
        const int others = divisions_[to][b].tasks();
        back.assign(own, 0);
        onward.assign(own, 0);
        home.assign(static_cast<std::size_t>(own) * others, -1);
        for (const Move& move : moves(e, a, b, true)) home[move.to * others + move.from] = move.duration;
        for (const Move& move : moves(e, a, b, false)) {
          const std::size_t there = first_[to][b] + move.to;
          onward[move.from] = std::max(onward[move.from], move.duration + ahead_[there]);
          const std::int64_t way = home[move.from * others + move.to];
          if (way >= 0)
            back[move.from] =
                std::max(back[move.from], move.duration + there_and_back_[there] + way);
        }
        for (int t = 0; t < own; ++t) {
          least_back[t] = b ? std::min(least_back[t], back[t]) : back[t];
          least_onward[t] = b ? std::min(least_onward[t], onward[t]) : onward[t];
        }
      }
    }
  }

  const TaskGraph& graph_;
  const Problem& problem_;
  std::vector<std::vector<Division>> divisions_;       // by operator and configuration
  std::vector<std::vector<std::size_t>> first_;        // so its tasks' place in what follows
  std::vector<std::int64_t> added_, there_and_back_, ahead_;
  std::vector<std::int64_t> least_work_;
  std::vector<int> table_;                             // by edge
  std::vector<Table> tables_;
  std::vector<std::vector<Synchronization>> synchronization_;  // by weights and combination
  std::vector<std::vector<std::int64_t>> return_, onward_;     // by edge and the producer's task
};

}  // namespace dltune::parallelism
