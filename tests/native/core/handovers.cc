// Steps whose transfers become ready on several threads in any order, and are taken by a transport of
// its own thread. Of every four steps one is given up half-way, as when it is cancelled or a receiver
// dies: some transfers never come, and what was handed over is dropped. Of every four others one runs
// its graph twice.
//
// usage: handovers STEPS
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

#include "core/handover.h"

namespace {

constexpr int kTransfers = 40, kThreads = 3;
constexpr int64_t kWindow = 1000;

// Takes what it is given, one after the other.
class Transport {
 public:
  Transport() : thread_([this] { Run(); }) {}
  ~Transport() {
    Give(nullptr, -1);
    thread_.join();
  }
  void Give(std::shared_ptr<dltune::Handover> from, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mu_);
    waiting_.emplace_back(std::move(from), bytes);
    ready_.notify_one();
  }

 private:
  void Run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mu_);
      ready_.wait(lock, [this] { return !waiting_.empty(); });
      auto [from, bytes] = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      if (!from) return;
      from->Taken(bytes);
    }
  }

  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<std::pair<std::shared_ptr<dltune::Handover>, int64_t>> waiting_;
  std::thread thread_;
};

int64_t BytesOf(int number) { return number % 7 == 0 ? 3 * kWindow : 1 + 37 * number % 300; }

}  // namespace

int main(int, char** arguments) {
  const int steps = std::atoi(arguments[1]);
  Transport transport;
  std::mt19937 random(1);
  int wrong = 0, kept_back = 0;
  for (int step = 0; step < steps; step++) {
    const bool given_up = step % 4 == 3;
    auto handover = dltune::HandoverOf(step % 2, step, "worker", kTransfers);
    std::vector<int> numbers(kTransfers);
    for (int i = 0; i < kTransfers; i++) numbers[i] = i;
    std::shuffle(numbers.begin(), numbers.end(), random);
    const bool twice = step % 4 == 1;
    if (given_up) numbers.resize(random() % kTransfers);
    const std::vector<int> once = numbers;
    if (twice) numbers.insert(numbers.end(), once.begin(), once.end());
    std::mutex mu;
    std::vector<int> handed;
    std::atomic<size_t> next{0};
    std::atomic<int> left{static_cast<int>(numbers.size())};
    auto arrive = [&] {
      for (size_t i; (i = next++) < numbers.size();) {
        const int number = numbers[i];
        handover->Arrive(number, BytesOf(number), [&, number] {
          {
            std::lock_guard<std::mutex> lock(mu);
            handed.push_back(number);
          }
          transport.Give(handover, BytesOf(number));
          left--;
        });
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) threads.emplace_back(arrive);
    if (given_up) threads.emplace_back([&] { handover->Open(); });
    for (auto& thread : threads) thread.join();
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (left > 0 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    kept_back += left > 0;
    std::lock_guard<std::mutex> lock(mu);
    if (!given_up && !twice) wrong += !std::is_sorted(handed.begin(), handed.end());
  }
  std::fprintf(stderr, "%d steps, %d out of order, %d kept back\n", steps, wrong, kept_back);
  return wrong || kept_back;
}
