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

std::vector<std::string> SequenceOf(const std::string& signature) {
  std::lock_guard<std::mutex> lock(g_mu);
  auto found = g_sequences.find(signature);
  return found == g_sequences.end() ? std::vector<std::string>() : found->second;
}

}  // namespace dltune
