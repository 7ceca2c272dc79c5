// Tensors that leave for the file and come back, from several threads at once. One in three is given
// up without being read. Tells how many came back changed, and how large the file is.
//
// usage: copies FOLDER ROUNDS
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "systems/memory/plugin/storage.h"

namespace {

constexpr int kThreads = 4;
const std::vector<size_t> kSizes{1, 4096, 70001, 300000};

class Event {
 public:
  void Set(const std::string& error) {
    std::lock_guard<std::mutex> lock(mu_);
    error_ = error;
    set_ = true;
    changed_.notify_all();
  }
  std::string Wait() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return set_; });
    return error_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::string error_;
  bool set_ = false;
};

// Its error, or nothing.
std::string Copy(const std::function<void(dltune::Copied)>& copy) {
  auto event = std::make_shared<Event>();
  copy([event](const std::string& error) { event->Set(error); });
  return event->Wait();
}

// The size of the file without a name that this process has open.
long FileBytes() {
  for (int descriptor = 3; descriptor < 64; descriptor++) {
    struct stat found;
    if (fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 0)
      return found.st_size;
  }
  return -1;
}

}  // namespace

int main(int, char** argv) {
  dltune::SetFolder(argv[1]);
  const int rounds = atoi(argv[2]);
  std::string error;
  if (!dltune::Reserve(1, &error)) {
    fprintf(stderr, "%s\n", error.c_str());
    return 3;
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      for (int round = 0; round < rounds; round++) {
        const size_t bytes = kSizes[(t + round) % kSizes.size()];
        std::string why;
        auto stored = dltune::Reserve(bytes, &why);
        std::vector<char> out(bytes, static_cast<char>(1 + t + 7 * round)), in(bytes);
        wrong += !Copy([&](auto copied) { Write(stored, out.data(), round, copied); }).empty();
        if (round % 3 == 0) continue;
        wrong += !Copy([&](auto copied) { Read(stored, in.data(), round, copied); }).empty();
        wrong += in != out;
      }
    });
  for (auto& thread : threads) thread.join();

  // the first keeps the engine busy until the others wait
  std::vector<char> data(1);
  std::mutex begun;
  std::vector<int> order;
  Event last;
  begun.lock();
  auto stored = dltune::Reserve(1, &error);
  Write(stored, data.data(), 0, [&](const std::string&) { std::lock_guard<std::mutex> wait(begun); });
  for (int urgency : {5, 2, 9, 2, 1})
    Write(stored, data.data(), urgency, [&, urgency](const std::string&) {
      order.push_back(urgency);
      if (order.size() == 5) last.Set("");
    });
  begun.unlock();
  last.Wait();
  fprintf(stderr, "%d wrong, %ld bytes, order", wrong.load(), FileBytes());
  for (int urgency : order) fprintf(stderr, " %d", urgency);
  fprintf(stderr, "\n");
}
