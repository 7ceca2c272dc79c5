#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "../../../native/core/child.h"
#include "../../../native/core/order_words.h"

namespace dltune {
namespace {

// What threads use is never destroyed: they run on while the process exits.
std::mutex g_mu;
auto& g_folder = *new std::string;
int g_file = -1;
int64_t g_end = 0;
// by size: a step stores the same bytes as the one before
auto& g_free = *new std::map<size_t, std::vector<int64_t>>;

class Engine {
 public:
  Engine() {
    std::thread([this] { Run(); }).detach();
  }
  void Add(int64_t urgency, std::function<void()> copy) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      waiting_.emplace(urgency, std::move(copy));
    }
    added_.notify_one();
  }

 private:
  void Run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mu_);
      added_.wait(lock, [this] { return !waiting_.empty(); });
      std::function<void()> copy = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      lock.unlock();
      copy();
    }
  }

  std::mutex mu_;
  std::condition_variable added_;
  std::multimap<int64_t, std::function<void()>> waiting_;  // equal ones as they come
};

Engine& Out() {
  static auto* engine = new Engine;
  return *engine;
}
Engine& In() {
  static auto* engine = new Engine;
  return *engine;
}

std::string Because(const std::string& what) {
  return "cannot " + what + " the tensor file in " + g_folder + ": " + strerror(errno);
}

// Opens it where it is not yet; called with the lock.
std::string Open() {
  if (g_file >= 0) return "";
  g_file = open(g_folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (g_file >= 0) return "";
  // a file system without files that have no name
  std::string path = g_folder + "/dltune-XXXXXX";
  g_file = mkostemp(path.data(), O_CLOEXEC);
  if (g_file < 0) return Because("make");
  unlink(path.c_str());
  return "";
}

// By `copy`, which is pread or pwrite, all of it.
template <typename Pointer>
bool Whole(ssize_t (*copy)(int, Pointer, size_t, off_t), Pointer data, const Stored& stored) {
  const auto begin = (const char*)data;
  for (size_t done = 0; done < stored.bytes;) {
    const ssize_t n = copy(g_file, (Pointer)(begin + done), stored.bytes - done, stored.offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    done += n;
  }
  return true;
}

const OrderWord g_folder_word("folder", [](const Fields& field) {
  std::string folder;
  return field.size() == 2 && Unescape(field[1], &folder) && (SetFolder(folder), true);
});

}  // namespace

Stored::~Stored() {
  if (InChild()) return;
  // what nobody will read need not be written, nor stay in the page cache
  fallocate(g_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  std::lock_guard<std::mutex> lock(g_mu);
  g_free[bytes].push_back(offset);
}

void SetFolder(const std::string& folder) {
  std::lock_guard<std::mutex> lock(g_mu);
  g_folder = folder;
}

std::shared_ptr<Stored> Reserve(size_t bytes, std::string* error) {
  std::lock_guard<std::mutex> lock(g_mu);
  *error = Open();
  if (!error->empty()) return nullptr;
  std::vector<int64_t>& free = g_free[bytes];
  if (free.empty()) {
    free.push_back(g_end);
    g_end += bytes;
  }
  auto stored = std::make_shared<Stored>(free.back(), bytes);
  free.pop_back();
  return stored;
}

void Write(std::shared_ptr<Stored> stored, const char* data, int64_t urgency, Copied copied) {
  Out().Add(urgency, [=] {
    copied(Whole<const void*>(pwrite, data, *stored) ? "" : Because("write"));
  });
}

void Read(std::shared_ptr<Stored> stored, char* data, int64_t urgency, Copied copied) {
  In().Add(urgency, [=] { copied(Whole<void*>(pread, data, *stored) ? "" : Because("read")); });
}

}  // namespace dltune
