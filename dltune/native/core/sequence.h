// In what order the nodes of a graph are to run, some of them several times.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace dltune {

// The next node of the graph with this signature.
void AddToSequence(const std::string& signature, const std::string& node);
// Names in order: for the graph with this signature, else for one of these very nodes, such as the
// same step with more examples; none: there is no order for it.
std::vector<std::string> SequenceOf(const std::string& signature,
                                    const std::set<std::string>& nodes);

}  // namespace dltune
