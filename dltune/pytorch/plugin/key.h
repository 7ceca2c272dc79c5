// What an op is called: its type, the shapes and types of its inputs, the arguments that change its work.
#pragma once

#include <ATen/record_function.h>

#include "../../native/core/execution.h"

namespace dltune {

// An op's type and arguments, which `Step` tells graphs by, and its key.
struct Keyed {
  const Node* kind;
  Key* key;
};

// Of an op that is about to run.
Keyed KeyOf(const at::RecordFunction& op);
// Of what has no inputs.
Keyed KeyOf(const std::string& type);

// Bytes of the tensors that it has given out, and whether one is to be differentiated.
int64_t OutputBytes(const at::RecordFunction& op);
bool RequiresGrad(const at::RecordFunction& op);

}  // namespace dltune
