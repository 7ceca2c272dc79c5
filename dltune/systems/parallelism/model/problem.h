// A network on devices, as Python hands it over (parallelism_binding.py has the same structs).
// Times are nanoseconds.
#pragma once

#include <cstdint>

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

}  // namespace dltune::parallelism
