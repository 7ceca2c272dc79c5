#pragma once

#include <functional>
#include <string>

#include "tensorflow/core/graph/graph.h"

namespace dltune {

// What follows a node's name, and a number, where it runs again.
constexpr char kAgain[] = "/dltune_again_";
// And where what it gives out leaves memory, or comes back.
constexpr char kOffload[] = "/dltune_offload_";
constexpr char kPrefetch[] = "/dltune_prefetch_";

// Whether it keeps something from one run to the next, or changes what it reads.
bool IsStateful(const tensorflow::Node& node);

// Where there is an order for the graph with this signature. `waits`: by a node's type, whether it
// may wait for another kernel.
void Rewrite(tensorflow::Graph* graph, const std::string& signature,
             const std::function<bool(const std::string&)>& waits);

}  // namespace dltune
