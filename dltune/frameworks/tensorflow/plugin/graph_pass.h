// What systems do to the graphs that run.
#pragma once

#include <string>

#include "tensorflow/core/graph/graph.h"

namespace dltune {

// A static object of this adds a pass over each graph that is captured. `signature`: the graph's, as
// the job made it.
struct GraphPass {
  enum Stage {
    kRewrite,  // before its nodes are recorded: the pass can change the graph
    kMark,     // afterwards: the pass can only add attributes, which must begin with "_"
  };
  using Run = void (*)(tensorflow::Graph* graph, const std::string& signature);
  GraphPass(Stage stage, Run run);
};

// Whether kernels of this type can wait for another kernel, for Python or for another process.
// Holding them up, or others behind them, could deadlock the job.
bool MayWait(const std::string& type);

// Whether it keeps something from one run to the next, or changes what it reads.
bool IsStateful(const tensorflow::Node& node);

}  // namespace dltune
