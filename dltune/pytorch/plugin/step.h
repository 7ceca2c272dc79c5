// The training step under way, which ends with an optimizer's. Ops run one after the other, and what
// graph they make is known only when the step is over: orders are for the graph that followed the last
// one before, and what ran under orders for another is not told.
//
// All of it belongs to the one thread that steps.
#pragma once

#include <string>

#include "../../native/core/execution.h"

namespace dltune {

// An op that has run. `threads`: as ordered, 0 for the job's own number.
struct Ran {
  const Node* kind;
  Key* key;
  int threads;
  int64_t start, end;
};

// Of the ops of a step: whether times are recorded, whether they are to have `ThreadsOf` their keys, and
// whether they are to be heard of at all, so that the graph is known.
struct Wanted {
  bool records = false, steers = false, hears = false;
};

// The next step; waits where dltune holds it back.
Wanted BeginStep();
int ThreadsOf(Key* key);
void Add(const Ran& ran);
void Spend(int64_t ns);  // in dltune's own code
// `name`: what has ended it.
void EndStep(const std::string& name);

}  // namespace dltune
