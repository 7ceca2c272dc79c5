// Runs of a graph whose transfers become ready on several threads in any order, and are taken by a
// transport of its own thread. All of them are struck by one fault:
//
//   none       nothing, but each run has the address of the one before
//   cancelled  given up while transfers come, all of which still do
//   failed     the same, and some never come
//   partial    another graph, with fewer transfers
//   repeated   each transfer comes twice, as from the body of a loop
//   together   two runs of the graph at once
//   receiver   who receives dies: what it was given is let go or not, then the run is given up
//   exit       the process ends while transfers come, wait and are taken
//
// usage: handovers FAULT RUNS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "systems/transfers/plugin/handover.h"

namespace {

std::atomic<int64_t> g_live{0};

}  // namespace

void* operator new(size_t bytes) {
  g_live++;
  return malloc(bytes);
}
void operator delete(void* block) noexcept {
  g_live -= block != nullptr;
  free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }

namespace {

constexpr int kTransfers = 40, kThreads = 3;
constexpr int64_t kWindow = 1000;

int64_t BytesOf(int number) { return number % 7 == 0 ? 3 * kWindow : 1 + 37 * number % 300; }

// Takes what it is given, one after the other, unless the receiver is dead.
class Transport {
 public:
  explicit Transport(bool dead) : dead_(dead), thread_([this] { Run(); }) {}
  ~Transport() {
    Give(nullptr, -1);
    thread_.join();
  }
  void Give(std::shared_ptr<dltune::Handover> from, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mu_);
    if (dead_ && from)
      held_.emplace_back(std::move(from), bytes);
    else
      waiting_.emplace_back(std::move(from), bytes);
    ready_.notify_one();
  }
  // What a dead receiver holds goes; `taken`: and the handover is told.
  void LetGo(bool taken) {
    std::lock_guard<std::mutex> lock(mu_);
    if (taken) std::move(held_.begin(), held_.end(), std::back_inserter(waiting_));
    held_.clear();
    ready_.notify_one();
  }

 private:
  using Given = std::pair<std::shared_ptr<dltune::Handover>, int64_t>;

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

  const bool dead_;
  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<Given> waiting_, held_;
  std::thread thread_;
};

// One run of a graph, as a framework has it: given up, or gone, it calls back who asked for that.
class Run {
 public:
  ~Run() { GiveUp(); }

  void GiveUp() {
    std::vector<std::function<void()>> told;
    {
      std::lock_guard<std::mutex> lock(mu_);
      over_ = true;
      told.swap(calls_);
    }
    for (auto& call : told) call();
  }

  void Send(int graph, int number, Transport* transport) {
    auto handover = dltune::HandoverOf(this, graph, "worker", [this](std::function<void()> call) {
      std::lock_guard<std::mutex> lock(mu_);
      if (!over_) calls_.push_back(std::move(call));
      return !over_;
    });
    came++;
    handover->Arrive(number, BytesOf(number), [=, this] {
      {
        std::lock_guard<std::mutex> lock(mu_);
        handed_.push_back(number);
      }
      transport->Give(handover, BytesOf(number));
      went++;
    });
  }

  bool in_order() {
    std::lock_guard<std::mutex> lock(mu_);
    return std::is_sorted(handed_.begin(), handed_.end());
  }

  std::atomic<int> came{0}, went{0};

 private:
  std::mutex mu_;
  bool over_ = false;
  std::vector<std::function<void()>> calls_;
  std::vector<int> handed_;
};

// Whether what a run was to hand over was, all of it and in order.
struct Seen {
  bool kept_back = false, in_order = true;
};

Seen Go(const std::string& fault, std::mt19937* random, Transport* transport) {
  const bool given_up = fault == "cancelled" || fault == "failed" || fault == "receiver";
  const int count = fault == "partial" ? 1 + (*random)() % (kTransfers - 1) : kTransfers;
  Run runs[2];
  std::vector<std::pair<Run*, int>> sends;
  for (int i = 0; i < count; i++) sends.emplace_back(&runs[0], i);
  if (fault == "together")
    for (int i = 0; i < count; i++) sends.emplace_back(&runs[1], i);
  if (fault == "repeated") sends.insert(sends.end(), sends.begin(), sends.begin() + count);
  std::shuffle(sends.begin(), sends.end(), *random);
  if (fault == "failed") sends.resize((*random)() % count);
  const size_t end = sends.empty() ? 0 : (*random)() % sends.size();
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < sends.size();)
        sends[i].first->Send(count, sends[i].second, transport);
    });
  if (given_up) {
    while (next < end) std::this_thread::yield();
    if ((*random)() % 2) transport->LetGo(true);
    runs[0].GiveUp();
  }
  for (auto& thread : threads) thread.join();
  Seen seen;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (auto& run : runs) {
    while (run.went < run.came && std::chrono::steady_clock::now() < patience)
      std::this_thread::yield();
    seen.kept_back = seen.kept_back || run.went < run.came;
    seen.in_order = seen.in_order && (given_up || fault == "repeated" || run.in_order());
  }
  transport->LetGo(false);
  return seen;
}

}  // namespace

int main(int, char** arguments) {
  const std::string fault = arguments[1];
  const int count = std::atoi(arguments[2]);
  std::mt19937 random(fault == "exit" ? count : 1);
  dltune::SetWindow(kWindow);
  if (fault == "exit") {
    std::thread([] {
      std::mt19937 own(1);
      for (Transport transport(false);;) Go("cancelled", &own, &transport);
    }).detach();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    return 0;
  }
  int wrong = 0, kept_back = 0;
  int64_t live = 0;
  for (int i = 0; i <= count; i++) {  // the first makes what stays
    {
      Transport transport(fault == "receiver");
      const Seen seen = Go(fault, &random, &transport);
      wrong += !seen.in_order;
      kept_back += seen.kept_back;
    }
    if (i == 0) live = g_live;
  }
  std::fprintf(stderr, "%d runs, %d out of order, %d kept back, %d left\n", count, wrong, kept_back,
               static_cast<int>(g_live - live));
  return wrong || kept_back || g_live != live;
}
