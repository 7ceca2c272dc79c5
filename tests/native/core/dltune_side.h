// dltune's side of the channel for a test program: one connection on a socket, whose messages go to
// standard output.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "core/channel.h"

class DltuneSide {
 public:
  // `first`: the orders that the job obeys before it goes on.
  explicit DltuneSide(const std::string& first) {
    path_ = "/tmp/dltune-test-" + std::to_string(getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path_.c_str());
    const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) abort();
    listen(listening, 1);
    std::thread accepting([&] {
      socket_ = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
      Tell(first + "ready\n");
    });
    const std::string complaint = dltune::OpenChannel(path_, "{\"type\":\"hello\"}");
    accepting.join();
    close(listening);
    unlink(path_.c_str());
    if (!complaint.empty()) fprintf(stderr, "%s\n", complaint.c_str()), abort();
    std::thread([this] {
      char buffer[1 << 16];
      for (ssize_t n; (n = recv(socket_, buffer, sizeof buffer, 0)) > 0;) {
        fwrite(buffer, 1, n, stdout);
        std::lock_guard<std::mutex> lock(mu_);
        last_.append(buffer, n);
        last_.erase(0, last_.rfind('\n', last_.size() - 2) + 1);
        heard_.notify_all();
      }
    }).detach();
  }

  // Whether the last message has this in it, within so many seconds: a busy machine takes its time.
  bool Heard(const std::string& words, int seconds) {
    std::unique_lock<std::mutex> lock(mu_);
    return heard_.wait_for(lock, std::chrono::seconds(seconds),
                           [&] { return last_.find(words) != std::string::npos; });
  }

  void Tell(const std::string& lines) {
    if (send(socket_, lines.data(), lines.size(), MSG_NOSIGNAL) < 0) abort();
  }

 private:
  std::string path_;
  int socket_ = -1;
  std::mutex mu_;
  std::condition_variable heard_;
  std::string last_;
};
