#include "handover.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "channel.h"
#include "child.h"

namespace dltune {
namespace {

// Nothing that the plan orders can wait for what it holds back, so this is for what nobody knows.
constexpr std::chrono::seconds kPatience{10};

std::mutex g_mu;
auto& g_ranks = *new std::unordered_map<std::string, std::unordered_map<std::string, int>>;
int64_t g_window = 1 << 20;

using Place = std::tuple<int64_t, int64_t, std::string>;  // graph, step, receiver
struct Kept {
  std::shared_ptr<Handover> handover;
  uint64_t number;
};
auto& g_handovers = *new std::map<Place, Kept>;
uint64_t g_made = 0;

void Watch() {
  for (;;) {
    std::this_thread::sleep_for(kPatience);
    std::vector<std::shared_ptr<Handover>> stuck;
    {
      std::lock_guard<std::mutex> lock(g_mu);
      for (auto& [place, kept] : g_handovers)
        if (kept.handover->stuck()) stuck.push_back(kept.handover);
    }
    for (auto& handover : stuck) {
      handover->Open();
      Complain(
          "transfers waited for ten seconds for an earlier one; that step went on without an order");
    }
  }
}

}  // namespace

void Handover::Arrive(int number, int64_t bytes, std::function<void()> hand) {
  {
    std::unique_lock<std::mutex> lock(mu_);
    came_++;
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
  {
    std::lock_guard<std::mutex> lock(mu_);
    under_way_ -= bytes;
    moves_++;
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

bool Handover::whole() {
  std::lock_guard<std::mutex> lock(mu_);
  return came_ >= count_;
}

bool Handover::stuck() {
  std::lock_guard<std::mutex> lock(mu_);
  const bool moved = moves_ != moves_before_;
  moves_before_ = moves_;
  return !moved && !waiting_.empty();
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
  moves_++;
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

void SetWindow(int64_t bytes) {
  std::lock_guard<std::mutex> lock(g_mu);
  g_window = bytes;
}

std::shared_ptr<Handover> HandoverOf(int64_t graph, int64_t step, const std::string& receiver,
                                     int count) {
  static const bool watched = (std::thread(Watch).detach(), true);
  (void)watched;
  std::lock_guard<std::mutex> lock(g_mu);
  Kept& kept = g_handovers[{graph, step, receiver}];
  if (kept.handover) return kept.handover;
  const auto handover = std::make_shared<Handover>(count, g_window);
  kept = {handover, g_made++};
  // those of steps that are over: all has come, or nothing more will, as the step was given up
  constexpr uint64_t kOften = 64, kLong = 1024;
  if (g_made % kOften == 0)
    for (auto one = g_handovers.begin(); one != g_handovers.end();) {
      const bool over = one->second.handover->whole() || g_made - one->second.number > kLong;
      one = over ? g_handovers.erase(one) : std::next(one);
    }
  return handover;
}

}  // namespace dltune
