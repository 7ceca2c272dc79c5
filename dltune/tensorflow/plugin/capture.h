// Marks each node of the graphs that run, and tells which node a kernel belongs to.
#pragma once

#include "../../native/core/execution.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace dltune {

// The node of this kernel, by the mark in its definition; null for kernels of unmarked graphs
// (eager ops). A kernel's address would not do: addresses are used again.
Node* NodeOf(const tensorflow::OpKernel& kernel);

// A hash of the op's input shapes, and the inputs as text for its key.
uint64_t HashInputs(tensorflow::OpKernelContext* context);
std::string DescribeInputs(tensorflow::OpKernelContext* context);

// Puts a send that waits for its turn in the place of TensorFlow's own, for graphs made from now on.
void RegisterOrderedSend();

}  // namespace dltune
