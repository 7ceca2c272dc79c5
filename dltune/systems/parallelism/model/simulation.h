// How long a step takes: each resource runs its tasks first in, first out (paper, Algorithm 1), those
// that became ready at the same time by their names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "task_graph.h"

namespace dltune::parallelism {

// Events by the time at which they are ready, and of those of one time by their names. What is pushed is
// never earlier than what was popped last, so that a radix heap does (Ahuja, Mehlhorn, Orlin and Tarjan,
// 1990): events stand together by the highest bit in which their time differs from the last one's.
struct Event {
  std::uint64_t name;
  std::int32_t resource, index;  // index: of the piece or hop; else -1
  std::int64_t ready, end;
};

class EventQueue {
 public:
  bool empty() const { return size_ == 0; }

  void clear() {
    for (auto& bucket : buckets_) bucket.clear();
    size_ = 0;
    last_ = 0;
    sorted_ = false;
  }

  void push(std::int64_t ready, std::uint64_t name, std::int32_t resource, std::int32_t index) {
    const int at = bucket(ready);
    buckets_[at].push_back({name, resource, index, ready});
    if (at == 0) sorted_ = false;
    ++size_;
  }

  Event pop() {
    auto& now = buckets_[0];
    if (now.empty()) advance();
    if (!sorted_) {
      std::sort(now.begin(), now.end(),
                [](const Waiting& a, const Waiting& b) { return a.name > b.name; });
      sorted_ = true;
    }
    const Waiting next = now.back();
    now.pop_back();
    --size_;
    return {next.name, next.resource, next.index, next.ready, 0};
  }

 private:
  struct Waiting {
    std::uint64_t name;
    std::int32_t resource, index;
    std::int64_t ready;
  };

  int bucket(std::int64_t ready) const {
    const std::uint64_t differs = static_cast<std::uint64_t>(ready ^ last_);
    return differs ? 64 - __builtin_clzll(differs) : 0;
  }

  // The earliest events of the first bucket that has any are the next.
  void advance() {
    int at = 1;
    while (buckets_[at].empty()) ++at;
    auto& from = buckets_[at];
    last_ = from.front().ready;
    for (const Waiting& one : from) last_ = std::min(last_, one.ready);
    for (const Waiting& one : from) buckets_[bucket(one.ready)].push_back(one);
    from.clear();
    sorted_ = false;
  }

  std::vector<Waiting> buckets_[65];
  std::size_t size_ = 0;
  std::int64_t last_ = 0;
  bool sorted_ = false;
};

// A task's name orders those that are ready at the same time: kind, number, then places.
namespace name {
enum Kind : std::uint64_t { kOperator, kPiece, kSynchronization };
constexpr std::uint64_t make(Kind kind, std::uint64_t number, std::uint64_t a, std::uint64_t b) {
  return std::uint64_t{kind} << 62 | number << 40 | a << 19 | b;
}
inline Kind kind(std::uint64_t name) { return static_cast<Kind>(name >> 62); }
inline int number(std::uint64_t name) { return static_cast<int>(name >> 40 & 0x3fffff); }
inline int first(std::uint64_t name) { return static_cast<int>(name >> 19 & 0x1fffff); }
inline int second(std::uint64_t name) { return static_cast<int>(name & 0x7ffff); }
constexpr std::uint64_t kBack = 1 << 20;  // in `first` of operators and pieces
enum Phase { kInHosts, kBetweenHosts, kUpdate };  // first = set * 4 + phase
}  // namespace name

class Simulation {
 public:
  explicit Simulation(const TaskGraph& graph) : graph_(graph), problem_(graph.problem()) {
    first_.resize(problem_.operators);
    last_.resize(problem_.resources);
    set_.resize(problem_.weights);
  }

  // The makespan in ns; some time above `limit` as soon as it must be above it.
  //
  // `kept`: events of an earlier run, in their order, that are known to come about again (`earlier` the
  // first of them); they are not queued anew. `log`: takes all events, unless it is null.
  std::int64_t run(std::int64_t limit = std::numeric_limits<std::int64_t>::max(),
                   std::vector<Event>* log = nullptr, const std::vector<Event>* earlier = nullptr,
                   std::size_t kept = 0) {
    reset();
    if (log) log->clear();
    makespan_ = 0;
    from_ = kept ? (*earlier)[kept - 1] : Event{};
    replaying_ = kept > 0;
    for (int o = 0; o < problem_.operators; ++o) {
      const int n = graph_.division[o].tasks();
      for (int task = 0; task < n; ++task)
        if (state_[first_[o] + task].awaited == 0)
          push(0, name::make(name::kOperator, o, 0, task), graph_.division[o].device(task), -1);
    }
    for (std::size_t n = 0; n < kept; ++n) {
      const Event& event = (*earlier)[n];
      last_[event.resource] = event.end;
      makespan_ = std::max(makespan_, event.end);
      finish(event);
      if (log) log->push_back(event);
    }
    replaying_ = false;
    while (!queue_.empty()) {
      Event event = queue_.pop();
      event.end = std::max(event.ready, last_[event.resource]) + duration(event);
      if (event.end > limit) return event.end;
      last_[event.resource] = event.end;
      makespan_ = std::max(makespan_, event.end);
      finish(event);
      if (log) log->push_back(event);
    }
    return makespan_;
  }

  std::int64_t duration(const Event& event) const {
    const int n = name::number(event.name);
    switch (name::kind(event.name)) {
      case name::kOperator:
        return graph_.duration(n, name::second(event.name), name::first(event.name) & name::kBack);
      case name::kPiece:
        return flow(event.name).pieces()[event.index].duration;
      default:
        if (phase(event.name) == name::kUpdate)
          return graph_.synchronization[n].sets[set(event.name)].update;
        return graph_.synchronization[n].hops[event.index].duration;
    }
  }

  const Flow& flow(std::uint64_t name) const {
    return name::first(name) & name::kBack ? graph_.backward[name::number(name)]
                                           : graph_.forward[name::number(name)];
  }
  static int phase(std::uint64_t name) { return name::first(name) & 3; }
  static int set(std::uint64_t name) { return name::first(name) >> 2; }

 private:
  // What is still awaited of a task or a place of synchronisation, and when the last of it was there.
  struct Wait {
    std::int64_t ready;
    std::int32_t awaited;
  };
  struct Synchronizing {
    std::vector<Wait> device, host, ring, set, between;  // ring: of each host
  };

  void reset() {
    queue_.clear();
    std::fill(last_.begin(), last_.end(), 0);
    std::size_t tasks = 0;
    for (int o = 0; o < problem_.operators; ++o) {
      first_[o] = tasks;
      tasks += 2 * graph_.division[o].tasks();
    }
    state_.assign(tasks, {0, 0});
    for (int o = 0; o < problem_.operators; ++o) {
      const int n = graph_.division[o].tasks();
      Wait* forward = &state_[first_[o]];
      for (int task = 0; task < n; ++task) forward[n + task].awaited = 1;
      for (int e : graph_.incoming[o]) add(graph_.forward[e].awaited(), forward);
      if (!problem_.operator_[o].gradient) continue;
      for (int e : graph_.outgoing[o]) add(graph_.backward[e].awaited(), forward + n);
    }
    for (int g = 0; g < problem_.weights; ++g) {
      const Synchronization& sync = graph_.synchronization[g];
      Synchronizing& here = set_[g];
      here.device.clear();
      here.host.clear();
      here.ring.clear();
      here.set.clear();
      here.between.clear();
      for (std::int32_t awaited : sync.awaited) here.device.push_back({0, awaited});
      for (const OnHost& host : sync.hosts) {
        here.host.push_back({0, host.awaited});
        here.ring.push_back({0, host.hops_end - host.hops});
      }
      for (const ShardSet& set : sync.sets) {
        here.set.push_back({0, set.hosts_end - set.hosts});
        here.between.push_back({0, set.hops_end - set.hops});
      }
    }
  }

  static void add(const std::vector<std::int32_t>& awaited, Wait* waits) {
    for (std::size_t task = 0; task < awaited.size(); ++task) waits[task].awaited += awaited[task];
  }

  static bool arrive(Wait* wait, std::int64_t time) {
    wait->ready = std::max(wait->ready, time);
    return --wait->awaited == 0;
  }

  void push(std::int64_t ready, std::uint64_t name, std::int32_t resource, std::int32_t index) {
    // else it is among those that are kept
    if (!replaying_ || ready > from_.ready || (ready == from_.ready && name > from_.name))
      queue_.push(ready, name, resource, index);
  }

  void finish(const Event& event) {
    const int n = name::number(event.name);
    switch (name::kind(event.name)) {
      case name::kOperator: {
        const int task = name::second(event.name);
        if (name::first(event.name) & name::kBack)
          gone_back(n, task, event.end);
        else
          gone_forward(n, task, event.end);
        break;
      }
      case name::kPiece: {
        const Piece& piece = flow(event.name).pieces()[event.index];
        const Edge& edge = problem_.edge[n];
        if (name::first(event.name) & name::kBack)
          reach(edge.producer, piece.to, true, event.end);
        else
          reach(edge.consumer, piece.to, false, event.end);
        break;
      }
      default:
        added_up(n, event);
    }
  }

  void reach(int op, int task, bool back, std::int64_t time) {
    const int n = graph_.division[op].tasks();
    Wait* wait = &state_[first_[op] + (back ? n : 0) + task];
    if (arrive(wait, time))
      push(wait->ready, name::make(name::kOperator, op, back ? name::kBack : 0, task),
           graph_.division[op].device(task), -1);
  }

  void pass(const Flow& flow, int edge, int target, int task, bool back, std::int64_t time) {
    for (const Piece* piece = flow.begin(task); piece != flow.end(task); ++piece) {
      if (piece->resource < 0)
        reach(target, piece->to, back, time);
      else
        push(time,
             name::make(name::kPiece, edge, (back ? name::kBack : 0) | piece->to, piece->part),
             piece->resource, static_cast<std::int32_t>(piece - flow.pieces().data()));
    }
  }

  void gone_forward(int op, int task, std::int64_t time) {
    for (int e : graph_.outgoing[op])
      pass(graph_.forward[e], e, problem_.edge[e].consumer, task, false, time);
    reach(op, task, true, time);
  }

  void gone_back(int op, int task, std::int64_t time) {
    for (int e : graph_.incoming[op])
      if (problem_.operator_[problem_.edge[e].producer].gradient)
        pass(graph_.backward[e], e, problem_.edge[e].producer, task, true, time);
    const int g = problem_.operator_[op].weights;
    if (g < 0) return;
    const Synchronization& sync = graph_.synchronization[g];
    const int device = graph_.division[op].device(task);
    Wait* wait = &set_[g].device[device];
    if (!arrive(wait, time)) return;
    for (int at = sync.member_first[device]; at < sync.member_first[device + 1]; ++at) {
      const auto& [set, host] = sync.member[at];
      if (!arrive(&set_[g].host[host], wait->ready)) continue;
      const OnHost& here = sync.hosts[host];
      const std::int64_t ready = set_[g].host[host].ready;
      if (here.hops == here.hops_end) host_done(g, set, ready);
      hops(g, set, name::kInHosts, here.hops, here.hops_end, ready);
    }
  }

  void hops(int g, int set, name::Phase phase, int first, int end, std::int64_t ready) {
    const Synchronization& sync = graph_.synchronization[g];
    for (int hop = first; hop < end; ++hop)
      push(ready, name::make(name::kSynchronization, g, set * 4 + phase, sync.hops[hop].device),
           sync.hops[hop].resource, hop);
  }

  void host_done(int g, int set, std::int64_t time) {
    Wait* wait = &set_[g].set[set];
    if (!arrive(wait, time)) return;
    const ShardSet& own = graph_.synchronization[g].sets[set];
    if (own.hops == own.hops_end) updates(g, set, wait->ready);
    hops(g, set, name::kBetweenHosts, own.hops, own.hops_end, wait->ready);
  }

  void updates(int g, int set, std::int64_t ready) {
    const ShardSet& own = graph_.synchronization[g].sets[set];
    if (own.update)
      for (int device : own.devices)
        push(ready, name::make(name::kSynchronization, g, set * 4 + name::kUpdate, device), device,
             -1);
  }

  void added_up(int g, const Event& event) {
    const int set = this->set(event.name);
    if (phase(event.name) == name::kBetweenHosts) {
      Wait* wait = &set_[g].between[set];
      if (arrive(wait, event.end)) updates(g, set, wait->ready);
    } else if (phase(event.name) == name::kInHosts) {
      const ShardSet& own = graph_.synchronization[g].sets[set];
      const auto& hosts = graph_.synchronization[g].hosts;
      int host = own.hosts;
      while (event.index >= hosts[host].hops_end) ++host;
      Wait* wait = &set_[g].ring[host];
      if (arrive(wait, event.end)) host_done(g, set, wait->ready);
    }
  }

  const TaskGraph& graph_;
  const Problem& problem_;
  EventQueue queue_;
  std::vector<std::size_t> first_;  // by operator: of its tasks in state_, forwards and then backwards
  std::vector<Wait> state_;
  std::vector<std::int64_t> last_;  // by resource: when it is free
  std::vector<Synchronizing> set_;
  std::int64_t makespan_ = 0;
  Event from_{};
  bool replaying_ = false;
};

}  // namespace dltune::parallelism
