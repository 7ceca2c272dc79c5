#include "handover.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../../../native/core/channel.h"
#include "../../../native/core/child.h"
#include "../../../native/core/order_words.h"

namespace dltune {
namespace {

// Nothing that the plan orders can wait for what it holds back, so this is for what nobody knows.
constexpr std::chrono::seconds kPatience{10};
// It is had once more for each so many bytes under way: a link may be slow.
constexpr int64_t kBytesOfPatience = 10 << 20;

std::mutex g_mu;
auto& g_ranks = *new std::unordered_map<std::string, std::unordered_map<std::string, int>>;
int64_t g_window = 1 << 20;
void (*g_when_ordered)() = nullptr;

using Place = std::tuple<const void*, int64_t, std::string>;  // run, graph, receiver
auto& g_handovers = *new std::map<Place, std::shared_ptr<Handover>>;

void Watch() {
  for (;;) {
    std::this_thread::sleep_for(kPatience);
    std::vector<std::shared_ptr<Handover>> stuck;
    {
      std::lock_guard<std::mutex> lock(g_mu);
      for (auto& [place, handover] : g_handovers)
        if (handover->stuck()) stuck.push_back(handover);
    }
    for (auto& handover : stuck) {
      handover->Open();
      Complain(
          "transfers waited ten seconds for an earlier transfer; this step ran without an order");
    }
  }
}

void Forget(const Place& place) {
  if (InChild()) return;
  std::shared_ptr<Handover> over;
  {
    std::lock_guard<std::mutex> lock(g_mu);
    auto found = g_handovers.find(place);
    if (found == g_handovers.end()) return;
    over = std::move(found->second);
    g_handovers.erase(found);
  }
  over->Open();
}

const OrderWord g_window_word("window", [](const Fields& field) {
  int64_t bytes = 0;
  return field.size() == 2 && Number<int64_t>(field[1], 0, INT64_MAX, &bytes) &&
         (SetWindow(bytes), true);
});

const OrderWord g_send_word("send", [](const Fields& field) {
  std::string receiver, tensor;
  if (field.size() != 3 || !Unescape(field[1], &receiver) || !Unescape(field[2], &tensor))
    return false;
  AddToOrder(receiver, tensor);
  if (g_when_ordered) g_when_ordered();
  return true;
});

}  // namespace

void Handover::Arrive(int number, int64_t bytes, std::function<void()> hand) {
  {
    std::unique_lock<std::mutex> lock(mu_);
    looks_ = 0;
    if (number < next_ || waiting_.count(number)) {
      under_way_ += bytes;
      lock.unlock();
      return hand();
    }
    waiting_.emplace(number, Waiting{bytes, std::move(hand)});
  }
  Pump();
}

void Handover::Taken(int64_t bytes) {
  if (InChild()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    under_way_ -= bytes;
    looks_ = 0;
  }
  Pump();
}

void Handover::Open() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    open_ = true;
  }
  Pump();
}

bool Handover::stuck() {
  std::lock_guard<std::mutex> lock(mu_);
  return !waiting_.empty() && looks_++ > under_way_ / kBytesOfPatience;
}

// One thread hands over at a time, or two could change places between taking and handing.
void Handover::Pump() {
  std::unique_lock<std::mutex> lock(mu_);
  if (handing_) return;
  handing_ = true;
  for (Waiting next; Take(&next);) {
    lock.unlock();
    next.hand();
    next.hand = nullptr;
    lock.lock();
  }
  handing_ = false;
}

bool Handover::Take(Waiting* next) {
  auto first = waiting_.begin();
  if (first == waiting_.end()) return false;
  const int64_t bytes = first->second.bytes;
  if (!open_ && first->first != next_) return false;
  if (!open_ && under_way_ > 0 && under_way_ + bytes > window_) return false;
  *next = std::move(first->second);
  next_ = first->first + 1;
  waiting_.erase(first);
  under_way_ += bytes;
  looks_ = 0;
  return true;
}

void AddToOrder(const std::string& receiver, const std::string& tensor) {
  std::lock_guard<std::mutex> lock(g_mu);
  auto& ranks = g_ranks[receiver];
  ranks.emplace(tensor, static_cast<int>(ranks.size()));
}

int RankOf(const std::string& receiver, const std::string& tensor) {
  std::lock_guard<std::mutex> lock(g_mu);
  auto ranks = g_ranks.find(receiver);
  if (ranks == g_ranks.end()) return -1;
  auto rank = ranks->second.find(tensor);
  return rank == ranks->second.end() ? -1 : rank->second;
}

bool HasOrders() {
  std::lock_guard<std::mutex> lock(g_mu);
  return !g_ranks.empty();
}

void WhenOrdered(void (*act)()) { g_when_ordered = act; }

void SetWindow(int64_t bytes) {
  std::lock_guard<std::mutex> lock(g_mu);
  g_window = bytes;
}

std::shared_ptr<Handover> HandoverOf(const void* run, int64_t graph, const std::string& receiver,
                                     const WhenOver& when_over) {
  static const bool watched = (std::thread(Watch).detach(), true);
  (void)watched;
  const Place place{run, graph, receiver};
  std::shared_ptr<Handover> handover;
  {
    std::lock_guard<std::mutex> lock(g_mu);
    auto [kept, begun] = g_handovers.try_emplace(place);
    if (!begun) return kept->second;
    handover = kept->second = std::make_shared<Handover>(g_window);
  }
  if (!when_over([place] { Forget(place); })) Forget(place);
  return handover;
}

}  // namespace dltune
