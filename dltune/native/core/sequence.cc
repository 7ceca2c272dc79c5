#include "sequence.h"

#include <mutex>
#include <unordered_map>

namespace dltune {
namespace {

std::mutex g_mu;
auto& g_sequences = *new std::unordered_map<std::string, std::vector<std::string>>;

}  // namespace

void AddToSequence(const std::string& signature, const std::string& node) {
  std::lock_guard<std::mutex> lock(g_mu);
  g_sequences[signature].push_back(node);
}

std::vector<std::string> SequenceOf(const std::string& signature,
                                    const std::set<std::string>& nodes) {
  std::lock_guard<std::mutex> lock(g_mu);
  auto found = g_sequences.find(signature);
  if (found != g_sequences.end()) return found->second;
  for (const auto& [_, sequence] : g_sequences)
    if (std::set<std::string>(sequence.begin(), sequence.end()) == nodes) return sequence;
  return {};
}

}  // namespace dltune
