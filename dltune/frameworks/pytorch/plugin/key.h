// What an op is called: its type, the shapes and types of its inputs, the arguments that change its work.
#pragma once

#include <ATen/record_function.h>

#include "step.h"

namespace dltune {

// What stands around ops or between them is no op of its own: an op that gives out memory of its input
// and computes nothing, a wrapper of the profiler's, a node of autograd. What torch.compile has compiled
// runs on the threads that it was compiled for.
enum class Part { kOp, kCompiled, kTransparent, kBackward };

bool BeginsLike(const std::string& text, const char* start);

struct Name {
  std::string text;
  uint64_t hash = 0;
  Part part = Part::kOp;
};

// Of an op, looked up by where its name stands in memory.
const Name& NameOf(const char* text);

// Of an op that is about to run.
Keyed& KeyOf(const at::RecordFunction& op, const Name& name);
// Of what has no inputs.
Keyed& KeyOf(const std::string& type);

// Bytes of the tensors that it has given out.
int64_t OutputBytes(const at::RecordFunction& op);

}  // namespace dltune
