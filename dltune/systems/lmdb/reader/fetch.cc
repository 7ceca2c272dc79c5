// Many pieces of one file: read with several requests in flight, or asked for ahead of time.

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace {

struct Piece {
  uint64_t offset;  // in the file
  uint64_t length;  // asked for
  uint64_t needed;  // that the file must have; the rest may lie beyond its end
  uint64_t place;   // in memory
};

constexpr int kShort = -1;
constexpr size_t kStackBytes = 256 << 10;

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

struct Work {
  int descriptor;
  uint64_t count;
  const Piece* pieces;
  char* memory;
  std::atomic<uint64_t> next;
  std::atomic<int> failed;
};

void* ReadPieces(void* argument) {
  auto& work = *static_cast<Work*>(argument);
  for (uint64_t at; !work.failed && (at = work.next.fetch_add(1)) < work.count;) {
    if (const int error = ReadPiece(work.descriptor, work.pieces[at], work.memory)) {
      int none = 0;
      work.failed.compare_exchange_strong(none, error);
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

// Gives memory its pages. Reads into memory without would take the lock on the address space for each
// of them, just when other threads allocate what they copy records to. A kernel before 5.14 does not
// know how, and goes that slow way.
__attribute__((visibility("default"))) void dltune_populate(char* memory, uint64_t length) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  madvise(memory, length, kPopulateWrite);
}

// Reads `count` pieces with at most `parallel` requests in flight. The first error ends it.
__attribute__((visibility("default"))) int dltune_fetch(int descriptor, uint64_t count,
                                                        const Piece* pieces, char* memory,
                                                        unsigned parallel) {
  Work work{descriptor, count, pieces, memory, {0}, {0}};
  // small stacks: the C library keeps those for the next threads rather than unmapping them, which
  // would take the lock on the address space
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  std::vector<pthread_t> threads;
  const uint64_t others = std::min<uint64_t>(parallel, count);
  for (uint64_t i = 1; i < others; i++) {
    pthread_t thread;
    // no more threads to be had: those there are do the work
    if (pthread_create(&thread, &attributes, ReadPieces, &work)) break;
    threads.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  ReadPieces(&work);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return work.failed;
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
