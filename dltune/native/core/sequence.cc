#include "sequence.h"

#include <mutex>
#include <unordered_map>

namespace dltune {
namespace {

std::mutex g_mu;
auto& g_sequences = *new std::unordered_map<std::string, std::vector<Move>>;

}  // namespace

void AddToSequence(const std::string& signature, Move next) {
  std::lock_guard<std::mutex> lock(g_mu);
  g_sequences[signature].push_back(std::move(next));
}

std::vector<Move> SequenceOf(const std::string& signature) {
  std::lock_guard<std::mutex> lock(g_mu);
  auto found = g_sequences.find(signature);
  return found == g_sequences.end() ? std::vector<Move>() : found->second;
}

}  // namespace dltune
