// An operator divided by a configuration: its tasks, their devices, and what parts of tensors meet.
#pragma once

#include <algorithm>
#include <vector>

#include "problem.h"

namespace dltune::parallelism {

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
