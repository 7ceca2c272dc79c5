#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "child.h"
#include "orders.h"

namespace dltune {
namespace {

// a dltune that stopped reading must not eat the job's memory: of what is told once there is less
constexpr size_t kMaxQueued = 4096, kMaxQueuedInAll = 1 << 16;

std::atomic<int> g_socket{-1};
// What threads use is never destroyed: they run on while the process exits.
std::mutex g_mu;
auto& g_queued = *new std::condition_variable;
auto& g_sent = *new std::condition_variable;
auto& g_queue = *new std::deque<std::function<std::string()>>;
bool g_busy = false;
bool g_closed = true;  // until a channel opens: `dltune.apply` has none

bool SendAll(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    ssize_t n = send(g_socket, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += n;
  }
  return true;
}

void SendLoop() {
  for (;;) {
    std::function<std::string()> make;
    {
      std::unique_lock<std::mutex> lock(g_mu);
      g_busy = false;
      g_sent.notify_all();
      g_queued.wait(lock, [] { return !g_queue.empty(); });
      make = std::move(g_queue.front());
      g_queue.pop_front();
      g_busy = true;
    }
    if (!SendAll(make() + "\n")) {
      std::lock_guard<std::mutex> lock(g_mu);
      g_closed = true;  // dltune is gone: the job goes on under its last orders
      g_queue.clear();
      g_busy = false;
      g_sent.notify_all();
      return;
    }
  }
}

// Reads lines and obeys them until "ready" (then returns nothing), or a complaint: an error, or the
// time is up.
std::string ObeyUntilReady(int timeout_ms) {
  static auto& rest = *new std::string;
  char buffer[65536];
  for (;;) {
    size_t end;
    while ((end = rest.find('\n')) != std::string::npos) {
      std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      if (line == "ready") return "";
      std::string trouble = Obey(line);
      if (!trouble.empty()) Complain(trouble);
    }
    pollfd wait{g_socket, POLLIN, 0};
    int got = poll(&wait, 1, timeout_ms);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return "dltune sent no reply";
    ssize_t n = recv(g_socket, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "dltune closed the connection";
    rest.append(buffer, n);
  }
}

}  // namespace

std::string OpenChannel(const std::string& path, const std::string& hello) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return "socket path too long: " + path;
  strcpy(address.sun_path, path.c_str());
  g_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (g_socket < 0 || connect(g_socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return "cannot connect to dltune: " + std::string(strerror(errno));
  if (!SendAll(hello + "\n")) return "dltune closed the connection";
  {
    std::lock_guard<std::mutex> lock(g_mu);
    g_closed = false;
  }
  const std::string complaint = ObeyUntilReady(30000);
  if (!complaint.empty()) return complaint;
  std::thread(SendLoop).detach();
  // dltune is to see the connection's end when the job has ended, whatever its children do
  pthread_atfork(nullptr, nullptr, [] {
    // a child of a child has another file by that number
    if (const int own = g_socket.exchange(-1); own >= 0) close(own);
  });
  std::thread([] {
    while (ObeyUntilReady(-1).empty()) {
    }
    LetGo();
  }).detach();
  return "";
}

void Send(std::function<std::string()> make, bool may_be_lost) {
  if (InChild()) return;
  {
    std::lock_guard<std::mutex> lock(g_mu);
    if (g_closed || g_queue.size() >= (may_be_lost ? kMaxQueued : kMaxQueuedInAll)) return;
    g_queue.push_back(std::move(make));
  }
  g_queued.notify_one();
}

void Complain(const std::string& text) {
  Send([text] { return Object({{"type", "complaint"}, {"text", text}}); });
}

void Flush() {
  if (InChild()) return;
  std::unique_lock<std::mutex> lock(g_mu);
  g_sent.wait_for(lock, std::chrono::seconds(5),
                  [] { return g_closed || (g_queue.empty() && !g_busy); });
}

}  // namespace dltune
