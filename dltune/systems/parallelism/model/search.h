// Metropolis-Hastings over strategies, with the simulation for its cost (paper, section 6).
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "simulation.h"

namespace dltune::parallelism {

// Of splitmix64 (Steele, Lea and Flood, 2014): the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// How proposals are made: one operator at a time, as the paper does; several at once besides; or every
// other configuration of every operator in turn, of which those that shorten the step are taken, until
// none does.
enum Moves : std::int32_t { kOne, kSeveral, kEvery };

// How a proposal is simulated: all tasks anew, the changed ones made anew, or from the first event that
// can change.
enum Method : std::int32_t { kFull, kIncremental, kDelta };

// `temperature`: a strategy that takes that share longer is accepted with probability 1 / e.
// It ends after `proposals` or, unless that is 0, after `seconds`.
struct Search {
  std::uint64_t seed;
  double temperature, seconds;
  std::int64_t proposals;
  std::int32_t moves, method;
};

// `settled`: no other configuration of any one operator makes the best shorter.
struct Outcome {
  std::int64_t best, current, proposals, simulated, accepted, best_at, settled;
  double seconds;
};

// Of a strategy that there is no room for.
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

class Chain {
 public:
  explicit Chain(TaskGraph* graph)
      : graph_(*graph), problem_(graph->problem()), simulation_(*graph) {
    std::map<std::int32_t, int> catalogs;
    catalog_.resize(problem_.operators);
    blocks_.resize(problem_.blocks);
    for (int o = 0; o < problem_.operators; ++o) {
      const Operator& op = problem_.operator_[o];
      if (op.block >= 0) blocks_[op.block].push_back(o);
      neighbours_ += op.configurations;
      const auto [at, fresh] =
          catalogs.emplace(op.first_configuration, static_cast<int>(alike_.size()));
      catalog_[o] = at->second;
      if (!fresh) continue;
      alike_.emplace_back();
      for (int n = 0; n < op.configurations; ++n)
        alike_.back().emplace(key(problem_.configuration[op.first_configuration + n]), n);
    }
    for (auto at = blocks_.begin(); at != blocks_.end();)
      at = at->size() < 2 ? blocks_.erase(at) : at + 1;
  }

  // From the graph's strategy on, which becomes the chain's last; `best`: takes the best strategy.
  Outcome run(const Search& search, std::int32_t* best) {
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    Random random(search.seed);
    Outcome out{};
    out.best = out.current = kNever;
    std::copy(graph_.choice.begin(), graph_.choice.end(), best);
    if (graph_.too_large()) return out;
    turn_ = {0, -1};
    std::int64_t current = simulation_.run(kNever, log(search.method));
    note(search.method);
    out.best = current;
    for (out.proposals = 0; out.proposals < search.proposals;) {
      if (search.seconds > 0 && (out.proposals & 15) == 0 && elapsed() >= search.seconds) break;
      if (search.moves == kEvery && out.proposals - out.best_at >= neighbours_) {
        out.settled = 1;
        break;
      }
      ++out.proposals;
      std::int64_t limit = current - 1;
      if (search.moves == kEvery) {
        next();
      } else {
        propose(&random, search.moves == kSeveral);
        // drawn before, so that a simulation ends as soon as it is too long
        const double most = static_cast<double>(current) *
                            (1 - search.temperature * std::log(std::max(random.share(), 1e-300)));
        limit = most < 9e18 ? static_cast<std::int64_t>(most) : kNever;
      }
      if (changes_.empty()) continue;
      const std::int64_t time = simulate(search.method, limit, &out.simulated);
      if (time > limit) {
        if (search.method == kFull)
          graph_.set(before_.data());
        else
          graph_.take_back();
        continue;
      }
      ++out.accepted;
      current = time;
      accept(search.method);
      if (current < out.best) {
        out.best = current;
        out.best_at = out.proposals;
        std::copy(graph_.choice.begin(), graph_.choice.end(), best);
      }
    }
    out.current = current;
    out.seconds = elapsed();
    return out;
  }

  // The change of one operator's configuration, simulated from the first event that can differ; the
  // graph is then as changed. For tests beside `Simulation::run`.
  std::int64_t delta(int op, int choice, std::vector<Event>* events) {
    simulation_.run(kNever, &events_[0]);
    note(kDelta);
    changes_ = {{op, choice}};
    const std::size_t kept = unchanged();
    graph_.change(changes_);
    return simulation_.run(kNever, events, &events_[0], kept);
  }

 private:
  static constexpr int kDraws = 16;
  using Key = std::vector<std::int32_t>;

  static Key key(const Configuration& c) {
    Key key(c.degrees, c.degrees + kDimensions);
    key.insert(key.end(), {c.replicas, c.start, c.stride});
    key.insert(key.end(), c.order, c.order + kDimensions + 1);
    return key;
  }

  void change(int op, int choice) {
    if (graph_.choice[op] != choice) changes_.emplace_back(op, choice);
  }

  // As `like` is divided, where the operator can be.
  void change_alike(int op, const Configuration& like) {
    const auto& catalog = alike_[catalog_[op]];
    const auto there = catalog.find(key(like));
    if (there != catalog.end()) change(op, there->second);
  }

  // The next configuration of the operator whose turn it is.
  void next() {
    changes_.clear();
    if (++turn_.second >= problem_.operator_[turn_.first].configurations) {
      turn_.first = (turn_.first + 1) % problem_.operators;
      turn_.second = 0;
    }
    change(turn_.first, turn_.second);
  }

  // The paper's: one operator, any of its configurations. Else one of several kinds: a whole block, a
  // run of a block's operators, a run of operators that follow each other, one as its neighbour is, one
  // alone; to any configuration, or to one that has the degrees or the devices of the present one.
  void propose(Random* random, bool blocks) {
    changes_.clear();
    const int op = random->below(problem_.operators);
    if (!blocks) {
      change(op, random->below(problem_.operator_[op].configurations));
      return;
    }
    const int move = blocks_.empty() ? 7 + random->below(12) : random->below(16);
    if (move < 7) {
      const auto& block = blocks_[random->below(static_cast<int>(blocks_.size()))];
      const int size = static_cast<int>(block.size());
      const int first = move < 5 ? 0 : random->below(size);
      const int last = move < 5 ? size : first + 1 + random->below(size - first);
      const Configuration& like = drawn(block[first], random);
      for (int n = first; n < last; ++n) change_alike(block[n], like);
    } else if (move < 10) {
      const Configuration& like = drawn(op, random);
      const int length = 1 << random->below(8);
      for (int o = op; o < std::min(op + length, problem_.operators); ++o) change_alike(o, like);
    } else if (move < 13) {
      const auto &in = graph_.incoming[op], &out = graph_.outgoing[op];
      const int edges = static_cast<int>(in.size() + out.size());
      if (!edges) return;
      const int n = random->below(edges);
      const int like = n < static_cast<int>(in.size())
                           ? problem_.edge[in[n]].producer
                           : problem_.edge[out[n - in.size()]].consumer;
      change_alike(op, graph_.configuration(like));
    } else {
      change_alike(op, drawn(op, random));
    }
  }

  const Configuration& drawn(int op, Random* random) const {
    const Operator& own = problem_.operator_[op];
    const Configuration& now = graph_.configuration(op);
    const bool near = random->below(2);
    for (int n = 0;; ++n) {
      const Configuration& any =
          problem_.configuration[own.first_configuration + random->below(own.configurations)];
      const bool degrees = std::equal(any.degrees, any.degrees + kDimensions, now.degrees);
      const bool place = any.start == now.start && any.stride == now.stride &&
                         tasks(any) == tasks(now);
      if (!near || degrees != place || n == kDraws) return any;
    }
  }

  static int tasks(const Configuration& c) {
    int tasks = c.replicas;
    for (const std::int32_t degree : c.degrees) tasks *= degree;
    return tasks;
  }

  std::int64_t simulate(std::int32_t method, std::int64_t limit, std::int64_t* simulated) {
    if (method == kFull) {
      before_ = graph_.choice;
      std::vector<std::int32_t> choice = before_;
      for (const auto& [op, to] : changes_) choice[op] = to;
      graph_.set(choice.data());
      ++*simulated;
      return graph_.too_large() ? kNever : simulation_.run();
    }
    const std::size_t kept = method == kDelta ? unchanged() : 0;
    graph_.change(changes_);
    if (graph_.too_large()) return kNever;
    if (const std::int64_t load = graph_.load(); load > limit) return load;
    ++*simulated;
    return simulation_.run(limit, method == kDelta ? &events_[1] : nullptr, &events_[0], kept);
  }

  std::vector<Event>* log(std::int32_t method) { return method == kDelta ? &events_[0] : nullptr; }

  void accept(std::int32_t method) {
    if (method != kDelta) return;
    std::swap(events_[0], events_[1]);
    note(method);
  }

  // When the first task of each operator ended, forwards and backwards.
  void note(std::int32_t method) {
    if (method != kDelta) return;
    ends_.assign(2 * problem_.operators, kNever);
    for (const Event& event : events_[0]) {
      if (name::kind(event.name) != name::kOperator) continue;
      std::int64_t& end = ends_[2 * name::number(event.name) +
                                (name::first(event.name) & name::kBack ? 1 : 0)];
      end = std::min(end, event.end);
    }
  }

  // How many of the events come before any that these changes can touch: what an operator reads, and
  // what adds up with its gradients, is there before.
  std::size_t unchanged() const {
    std::int64_t first = kNever;
    for (const auto& [op, choice] : changes_) {
      if (!waits(op)) return 0;
      for (int e : graph_.incoming[op])
        first = std::min(first, ends_[2 * problem_.edge[e].producer]);
      if (problem_.operator_[op].weights >= 0)
        for (int other : graph_.members(problem_.operator_[op].weights))
          first = std::min(first, ends_[2 * other + 1]);
    }
    const auto at = std::lower_bound(
        events_[0].begin(), events_[0].end(), first,
        [](const Event& event, std::int64_t time) { return event.ready < time; });
    return static_cast<std::size_t>(at - events_[0].begin());
  }

  // Whether each of its positions reads something of one input: every task waits for that.
  bool waits(int op) const {
    const Operator& own = problem_.operator_[op];
    for (int e : graph_.incoming[op]) {
      const Edge& edge = problem_.edge[e];
      const Operator& given = problem_.operator_[edge.producer];
      bool all = true;
      for (int d = 0; d < kDimensions; ++d) {
        const Region& region = edge.regions[d];
        const std::int64_t last =
            region.of < 0 ? 0 : std::int64_t{own.size[region.of] - 1} * region.stride;
        all = all && region.start + region.extent > 0 && last + region.start < given.size[d];
      }
      if (all) return true;
    }
    return false;
  }

  TaskGraph& graph_;
  const Problem& problem_;
  Simulation simulation_;
  std::vector<std::int32_t> catalog_;
  std::vector<std::map<Key, int>> alike_;
  std::vector<std::vector<std::int32_t>> blocks_;
  std::vector<std::pair<std::int32_t, std::int32_t>> changes_;
  std::pair<std::int32_t, std::int32_t> turn_{0, -1};
  std::int64_t neighbours_ = 0;
  std::vector<std::int32_t> before_;
  std::vector<Event> events_[2];
  std::vector<std::int64_t> ends_;
};

}  // namespace dltune::parallelism
