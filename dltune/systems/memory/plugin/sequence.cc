#include "sequence.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "../../../native/core/order_words.h"

namespace dltune {
namespace {

std::mutex g_mu;
auto& g_sequences = *new std::unordered_map<std::string, std::vector<Move>>;

// Adds a line to a graph's sequence. The graph's signature comes first.
bool AddMove(const Fields& field) {
  constexpr int kMost = 1 << 20;
  const size_t n = field.size();
  std::string signature;
  Move next;
  if (n < 3 || !Unescape(field[1], &signature)) return false;
  const auto urgency = [&] { return Number<int64_t>(field[n - 1], 0, INT64_MAX, &next.urgency); };
  bool good = false;
  if (field[0] == "run") {
    next.kind = Move::kRun;
    good = n == 3 && Unescape(field[2], &next.node);
  } else if (field[0] == "offload") {
    next.kind = Move::kOffload;
    good = n == 5 && Unescape(field[2], &next.node) && Number(field[3], 0, kMost, &next.slot) &&
           urgency();
  } else if (field[0] == "offloaded") {
    next.kind = Move::kOffloaded;
    good = n == 3 && Number(field[2], 0, kMost, &next.number);
  } else {
    next.kind = Move::kPrefetch;
    good = n == 4 && Number(field[2], 0, kMost, &next.number) && urgency();
  }
  if (!good) return false;
  std::lock_guard<std::mutex> lock(g_mu);
  g_sequences[signature].push_back(std::move(next));
  return true;
}

const OrderWord g_run("run", AddMove);
const OrderWord g_offload("offload", AddMove);
const OrderWord g_offloaded("offloaded", AddMove);
const OrderWord g_prefetch("prefetch", AddMove);

}  // namespace

std::vector<Move> SequenceOf(const std::string& signature) {
  std::lock_guard<std::mutex> lock(g_mu);
  auto found = g_sequences.find(signature);
  return found == g_sequences.end() ? std::vector<Move>() : found->second;
}

}  // namespace dltune
