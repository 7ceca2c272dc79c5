// A network on devices, as Python hands it over (parallelism_binding.py has the same structs), and an
// operator divided by a configuration: its tasks, their devices, and the common parts of tensors.
// Times are nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../../../native/mirrored.h"

namespace dltune::parallelism {

constexpr int kDimensions = 4;

// As schemas/operators.py's; `of` is -1 where the same is read for all positions.
struct Region {
  std::int32_t extent, of, stride, start;
};

struct Edge {
  std::int32_t producer, consumer;
  Region regions[kDimensions];
};

// As configurations.py's.
struct Configuration {
  std::int32_t degrees[kDimensions], replicas, start, order[kDimensions + 1], stride;
};

// `size`: of each dimension, 1 for those it has not; `parameter` and `weights`: -1 for none. Its
// configurations are `configurations` of them from `first_configuration` on, and their times for
// each kind of device from `first_time` on. Operators of one `block` do the same in the network.
struct Operator {
  std::int32_t size[kDimensions];
  std::int32_t parameter, weights, element, gradient, block;
  std::int32_t first_configuration, configurations;
  std::int64_t first_time;
};

// Edges stand in the order of their consumers. `channel`, `latency`, `per_byte`: for each ordered
// pair of devices; resources are the devices and then the other channels. `update_per_byte`: of
// weights, on each device that holds them (0: left out). `all_reduce`: 0 where gradients of what
// several parts read are sent to where they are kept; else these parts add them up whole, and a byte
// that is added up takes so many times as long as one of a piece. `all_to_all`: the same of a piece
// that is not all of a part, 1 where it is like others.
struct Problem {
  std::int32_t devices, kinds, resources, operators, edges, weights, blocks;
  double update_per_byte, all_reduce, all_to_all;
  const std::int32_t *kind, *host;
  const std::int32_t* channel;
  const std::int64_t* latency;
  const double* per_byte;
  const Operator* operator_;
  const Edge* edge;
  const Configuration* configuration;
  const std::int64_t *forward, *backward;
  const double* weight_bytes;
};

// An operator divided by a configuration: its tasks, their devices, and what parts of tensors meet.

struct Span {
  std::int64_t low, high;  // from, to below
};

class Division {
 public:
  Division() = default;

  Division(const Operator& op, const Configuration& c, int devices) : op_(&op), c_(&c) {
    parts_ = 1;
    for (int d = 0; d < kDimensions; ++d) parts_ *= c.degrees[d];
    std::int32_t step[kDimensions + 1];
    std::int32_t next = c.stride;
    for (int i = kDimensions; i >= 0; --i) {
      const int axis = c.order[i];
      step[axis] = next;
      next *= axis == kDimensions ? c.replicas : c.degrees[axis];
    }
    device_.resize(tasks());
    std::int32_t place[kDimensions];
    for (int part = 0; part < parts_; ++part) {
      this->place(part, place);
      std::int32_t at = c.start;
      for (int d = 0; d < kDimensions; ++d) at += place[d] * step[d];
      for (int k = 0; k < c.replicas; ++k)
        device_[part * c.replicas + k] = (at + k * step[kDimensions]) % devices;
    }
  }

  int parts() const { return parts_; }
  int replicas() const { return c_->replicas; }
  int tasks() const { return parts_ * c_->replicas; }
  const Configuration& configuration() const { return *c_; }
  int device(int task) const { return device_[task]; }

  // The replica of a part that is on this device, or -1.
  int replica_on(int part, int device) const {
    for (int k = 0; k < c_->replicas; ++k)
      if (device_[part * c_->replicas + k] == device) return k;
    return -1;
  }

  void place(int part, std::int32_t* place) const {
    for (int d = kDimensions - 1; d >= 0; --d) {
      place[d] = part % c_->degrees[d];
      part /= c_->degrees[d];
    }
  }

  Span span(int dimension, int place) const {
    const std::int64_t size = op_->size[dimension], degree = c_->degrees[dimension];
    return {place * size / degree, (place + 1) * size / degree};
  }

  // The part of the weights, of `parameter_degree()`, that a part of the output takes.
  int parameter() const { return op_->parameter; }
  int parameter_degree() const { return op_->parameter < 0 ? 1 : c_->degrees[op_->parameter]; }
  int parameter_place(int part) const {
    if (op_->parameter < 0) return 0;
    std::int32_t at[kDimensions];
    place(part, at);
    return at[op_->parameter];
  }

 private:
  const Operator* op_ = nullptr;
  const Configuration* c_ = nullptr;
  int parts_ = 0;
  std::vector<std::int32_t> device_;
};

// Calls meet(consumer's part, producer's part, positions) for all that share some.
template <class Meet>
void for_all_meetings(const Problem& problem, const Edge& edge, const Division& producer,
                      const Division& consumer, Meet meet) {
  struct Overlap {
    std::int32_t part;
    std::int64_t positions;
  };
  const Operator& given = problem.operator_[edge.producer];
  thread_local std::vector<Overlap> overlaps[kDimensions];
  std::int32_t at[kDimensions];
  for (int i = 0; i < consumer.parts(); ++i) {
    consumer.place(i, at);
    bool any = true;
    for (int d = 0; d < kDimensions && any; ++d) {
      const Region& region = edge.regions[d];
      Span read{region.start, std::int64_t{region.start} + region.extent};
      if (region.of >= 0) {
        const Span own = consumer.span(region.of, at[region.of]);
        if (own.low >= own.high) any = false;
        read = {own.low * region.stride + region.start,
                (own.high - 1) * region.stride + region.start + region.extent};
      }
      read.low = std::max<std::int64_t>(read.low, 0);
      read.high = std::min<std::int64_t>(read.high, given.size[d]);
      overlaps[d].clear();
      if (read.low >= read.high) any = false;
      const int degree = producer.configuration().degrees[d];
      // positions before the first part that ends after read.low are of no interest
      int first = any ? static_cast<int>(read.low * degree / given.size[d]) : degree;
      for (int j = first; j < degree; ++j) {
        const Span part = producer.span(d, j);
        if (part.low >= read.high) break;
        const std::int64_t shared =
            std::min(part.high, read.high) - std::max(part.low, read.low);
        if (shared > 0) overlaps[d].push_back({j, shared});
      }
      any = any && !overlaps[d].empty();
    }
    if (!any) continue;
    const auto& degrees = producer.configuration().degrees;
    for (const Overlap& a : overlaps[0])
      for (const Overlap& b : overlaps[1])
        for (const Overlap& c : overlaps[2])
          for (const Overlap& d : overlaps[3])
            meet(i, ((a.part * degrees[1] + b.part) * degrees[2] + c.part) * degrees[3] + d.part,
                 a.positions * b.positions * c.positions * d.positions);
  }
}

}  // namespace dltune::parallelism
