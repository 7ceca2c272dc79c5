// Marks each node of the graphs that run, and tells which node a kernel belongs to.
#pragma once

#include "../../../native/core/execution.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace dltune {

// The node of this kernel, by the mark in its definition; null for kernels of unmarked graphs (eager
// ops), and of graphs that another process has marked and then sent here. A kernel's address would
// not do: addresses are used again.
Node* NodeOf(const tensorflow::OpKernel& kernel);

// The number of the graph to which a kernel belongs, one of its own in all processes; -1: of none.
int64_t GraphOf(const tensorflow::OpKernel& kernel);

// A hash of the op's input shapes, and the inputs as text for its key.
uint64_t HashInputs(tensorflow::OpKernelContext* context);
std::string DescribeInputs(tensorflow::OpKernelContext* context);

// The same for a cluster, with its name: XLA compiles it once for each.
uint64_t HashCluster(const tensorflow::OpKernel& kernel, tensorflow::OpKernelContext* context);

}  // namespace dltune
