// What is counted while an op runs, in each thread of its team: the one that steps, and those that the
// OpenMP runtime puts beside it. They open no counters themselves, for nothing of dltune's runs in them:
// the stepping thread does, and reads them.
#pragma once

#include <vector>

#include "../../../native/core/counters.h"

namespace dltune {

// Of each thread of a team, the calling one last: to read another's takes long, and is none of the op.
// None where they cannot be read. `began`: when the first was, CLOCK_MONOTONIC ns.
struct Readings {
  int64_t began = 0;
  std::vector<Reading> threads;
};

// Teams may have other threads from now on.
void ForgetTeams();
// Nothing is counted any more.
void CloseTeams();
// Of the team of so many threads; the first time since it was forgotten, that must be the number in force.
Readings ReadTeam(CounterGroup* group, int width);
// By the same team; incomplete where some of it have ended meanwhile.
Counts CountedSince(const Readings& before, CounterGroup* group, int width);

}  // namespace dltune
