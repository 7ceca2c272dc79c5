// The training step under way, which ends with an optimizer's. Ops run one after the other, and what
// graph they make is known only when the step is over: orders are for the graph that followed the last
// one before, and what ran under orders for another is not told.
//
// To describe an op by its inputs takes PyTorch longer than to run a small one. In a step whose ops have
// been the same for some time, and whose first ones are again, the others are known by their places.
// Now and then all are described anew.
//
// All of it belongs to the one thread that steps.
#pragma once

#include <functional>
#include <string>

#include "../../../native/core/execution.h"

namespace dltune {

// An op's type and arguments, which graphs are told by, and its key; null: it was not described.
struct Keyed {
  const Node* kind = nullptr;
  Key* key = nullptr;
  int calls = -1;  // of other ops, while it ran the first time
};

enum class Phase { kForward, kBackward, kOptimizer };

constexpr int64_t kNoNode = -1;

// An op that has run. `threads`: as ordered, 0 for the job's own number. `placed`: known by its place.
// `counts`: their index among those of the step; -1: not counted. Autograd numbers the nodes of its
// graph: this op has made those from `number` to before `next`, and was called by `node`.
struct Ran {
  Keyed* op;
  Phase phase;
  bool placed;
  int threads;
  int64_t start, end;
  int counts = -1;
  int64_t node = kNoNode;
  uint64_t number = 0, next = 0;
};

// Of the ops of a step: whether times are recorded, whether they are to have `ThreadsOf` their keys,
// whether they are to be heard of at all, so that the graph is known, whether denormal numbers are
// zero to them, and what is counted while they run, if anything.
struct Wanted {
  bool records = false, steers = false, hears = false, flushes = false;
  CounterGroup* counters = nullptr;
};

// The next step; waits where dltune holds it back. `own`: the job's number of threads.
Wanted BeginStep(int own);
// The next op has been described: whether those after it are known by their places.
bool ArePlaced(const Keyed* described);
// The next op, of this type, by its place; one without a key where another one was there.
Keyed* OpAtPlace(const std::string& type);
// Of this type; nothing else is known of it.
Keyed* Undescribed(const std::string& type);
int ThreadsOf(Key* key, int own);
void Add(const Ran& ran);
// Of an op; their index among those of the step, -1 where not all could be counted.
int Add(const Counts& counts);
void Spend(int64_t ns);  // in dltune's own code
// A collective begins, on whatever thread. What is given is to be called when it ends; empty in a step
// that is not recorded.
std::function<void()> BeginCollective();
// `name`: what has ended it.
void EndStep(const std::string& name);

}  // namespace dltune
