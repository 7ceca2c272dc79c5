// What one edge moves, one way: from tasks of one operator to tasks of the other (paper, section 5.1).
#pragma once

#include <cstdint>
#include <vector>

#include "division.h"

namespace dltune::parallelism {

// A sub-tensor from one task to another; `resource` is -1 where both are on one device. `part`: of the
// operator that it comes from.
struct Piece {
  std::int32_t from, to, part, resource;
  std::int64_t duration, bytes;
};

inline std::int64_t at_least_one(std::int64_t nanoseconds) {
  return nanoseconds < 1 ? 1 : nanoseconds;
}

inline std::int64_t travel(const Problem& problem, int a, int b, double bytes) {
  const std::size_t pair = static_cast<std::size_t>(a) * problem.devices + b;
  return problem.latency[pair] + static_cast<std::int64_t>(bytes * problem.per_byte[pair]);
}

// Pieces by the task that they come from.
class Flow {
 public:
  const Piece* begin(int task) const { return pieces_.data() + first_[task]; }
  const Piece* end(int task) const { return pieces_.data() + first_[task + 1]; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // How many pieces each task waits for.
  const std::vector<std::int32_t>& awaited() const { return awaited_; }

  // To tasks of the consumer what they read.
  void forward(const Problem& problem, const Edge& edge, const Division& producer,
               const Division& consumer) {
    scratch().clear();
    const double element = problem.operator_[edge.producer].element;
    for_all_meetings(problem, edge, producer, consumer,
                     [&](int into, int from, std::int64_t positions) {
                       const double times =
                           positions < positions_of(producer, from) ? problem.all_to_all : 1.0;
                       pass(problem, producer, from, consumer, into,
                            static_cast<double>(positions) * element, times);
                     });
    sort(producer.tasks(), consumer.tasks());
  }

  // To tasks of the producer the gradients of what they gave.
  void backward(const Problem& problem, const Edge& edge, const Division& producer,
                const Division& consumer) {
    scratch().clear();
    const double element = problem.operator_[edge.producer].element;
    const int parts = problem.all_reduce == 0 ? 1 : partial(edge, consumer);
    thread_local std::vector<std::int64_t> read;
    read.assign(consumer.parts(), 0);
    for_all_meetings(problem, edge, producer, consumer,
                     [&](int from, int, std::int64_t positions) { read[from] += positions; });
    for_all_meetings(problem, edge, producer, consumer,
                     [&](int from, int into, std::int64_t positions) {
                       double bytes = static_cast<double>(positions) * element;
                       double times = positions < read[from] ? problem.all_to_all : 1.0;
                       if (parts > 1) {
                         // of 2 (parts - 1) / parts that a ring sends, to each other part its share
                         bytes = static_cast<double>(read[from]) * element * 2 / parts;
                         times = problem.all_reduce;
                       }
                       pass(problem, consumer, from, producer, into, bytes, times);
                     });
    sort(consumer.tasks(), producer.tasks());
  }

 private:
  // How many parts read the same for other parameters each: their gradients to it are to be added up.
  static int partial(const Edge& edge, const Division& consumer) {
    if (consumer.parameter() < 0) return 1;
    for (const Region& region : edge.regions)
      if (region.of == consumer.parameter()) return 1;
    return consumer.parameter_degree();
  }

  static std::int64_t positions_of(const Division& one, int part) {
    std::int32_t at[kDimensions];
    one.place(part, at);
    std::int64_t positions = 1;
    for (int d = 0; d < kDimensions; ++d) {
      const Span span = one.span(d, at[d]);
      positions *= span.high - span.low;
    }
    return positions;
  }

  static std::vector<Piece>& scratch() {
    thread_local std::vector<Piece> pieces;
    return pieces;
  }

  // Each replica of part `into` has it from a replica of part `from` on its own device if there is
  // one, else from that of its own number.
  void pass(const Problem& problem, const Division& source, int from, const Division& target,
            int into, double whole, double times) {
    const std::int64_t bytes = static_cast<std::int64_t>(whole);
    for (int k = 0; k < target.replicas(); ++k) {
      const int to = into * target.replicas() + k, there = target.device(to);
      const int near = source.replica_on(from, there);
      if (near >= 0) {
        scratch().push_back({from * source.replicas() + near, to, from, -1, 0, 0});
        continue;
      }
      const int task = from * source.replicas() + k % source.replicas(), here = source.device(task);
      scratch().push_back(
          {task, to, from,
           problem.channel[static_cast<std::size_t>(here) * problem.devices + there],
           at_least_one(travel(problem, here, there, static_cast<double>(bytes) * times)), bytes});
    }
  }

  void sort(int sources, int targets) {
    first_.assign(sources + 1, 0);
    awaited_.assign(targets, 0);
    for (const Piece& piece : scratch()) {
      ++first_[piece.from + 1];
      ++awaited_[piece.to];
    }
    for (int task = 0; task < sources; ++task) first_[task + 1] += first_[task];
    pieces_.resize(scratch().size());
    std::vector<std::int32_t>& next = next_;
    next.assign(first_.begin(), first_.end() - 1);
    for (const Piece& piece : scratch()) pieces_[next[piece.from]++] = piece;
  }

  std::vector<Piece> pieces_;
  std::vector<std::int32_t> first_, awaited_, next_;
};

}  // namespace dltune::parallelism
