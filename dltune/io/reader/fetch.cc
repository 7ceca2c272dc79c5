// Many pieces of one file: read with several requests in flight, or asked for ahead of time.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace {

struct Piece {
  uint64_t offset;  // in the file
  uint64_t length;  // asked for
  uint64_t needed;  // that the file must have; the rest may lie beyond its end
  uint64_t place;   // in memory
};

constexpr int kShort = -1;

// 0, an errno, or kShort when the file ends within what is needed
int ReadPiece(int descriptor, const Piece& piece, char* memory) {
  uint64_t done = 0;
  while (done < piece.needed) {
    const ssize_t got = pread(descriptor, memory + piece.place + done, piece.length - done,
                              static_cast<off_t>(piece.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return kShort;
    done += static_cast<uint64_t>(got);
  }
  return 0;
}

}  // namespace

extern "C" {

// Reads `count` pieces with at most `parallel` requests in flight. The first error ends it.
__attribute__((visibility("default"))) int dltune_fetch(int descriptor, uint64_t count,
                                                        const Piece* pieces, char* memory,
                                                        unsigned parallel) {
  std::atomic<uint64_t> next{0};
  std::atomic<int> failed{0};
  const auto work = [&] {
    for (uint64_t at; !failed && (at = next.fetch_add(1)) < count;) {
      if (const int error = ReadPiece(descriptor, pieces[at], memory)) {
        int none = 0;
        failed.compare_exchange_strong(none, error);
      }
    }
  };
  std::vector<std::thread> threads;
  const uint64_t others = std::min<uint64_t>(parallel, count);
  for (uint64_t i = 1; i < others; i++) {
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: those there are do the work
    }
  }
  work();
  for (auto& thread : threads) thread.join();
  return failed;
}

// Asks the kernel to read pieces into the page cache. It silently reads no more than the device's
// read-ahead of one call, so each call asks for at most `step` bytes.
__attribute__((visibility("default"))) void dltune_advise(int descriptor, uint64_t count,
                                                          const uint64_t* offsets,
                                                          const uint64_t* lengths, uint64_t step) {
  for (uint64_t i = 0; i < count; i++) {
    for (uint64_t done = 0; done < lengths[i]; done += step) {
      posix_fadvise(descriptor, static_cast<off_t>(offsets[i] + done),
                    static_cast<off_t>(std::min(step, lengths[i] - done)), POSIX_FADV_WILLNEED);
    }
  }
}

}  // extern "C"
