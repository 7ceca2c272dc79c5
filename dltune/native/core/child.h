// Processes that the job forks. A forked child has none of dltune's threads, and locks that they held
// stay locked in it: there dltune does nothing and takes no lock.
#pragma once

namespace dltune {

// Whether this process was forked from one that had loaded dltune.
bool InChild();

}  // namespace dltune
