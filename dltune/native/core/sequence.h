// In what order the nodes of a graph are to run, some of them several times.
#pragma once

#include <string>
#include <vector>

namespace dltune {

// The next node of the graph with this signature.
void AddToSequence(const std::string& signature, const std::string& node);
// Names in order; none: there is no order for it.
std::vector<std::string> SequenceOf(const std::string& signature);

}  // namespace dltune
