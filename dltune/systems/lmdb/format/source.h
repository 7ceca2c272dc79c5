// The file: its snapshot as the meta page tells it, and reading that never goes beyond its end.
// Plain reads, no mapping: a file that shrinks meanwhile is an error here and SIGBUS in a mapping.

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <unordered_map>

#include "page.h"

namespace dltune {

// As in lmdb_binding.py.
struct File {
  int32_t descriptor;
  Layout layout;
  uint64_t size;       // bytes
  uint64_t last_page;  // of the snapshot
  uint64_t txn;

  void read(uint64_t offset, uint8_t* into, size_t length) const {
    while (length) {
      const ssize_t got = pread(descriptor, into, length, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Fault{std::string("it cannot be read: ") + std::strerror(errno)};
      if (got == 0)
        throw Fault{"it ends before page " + std::to_string(offset / layout.page_size) +
                    " is complete"};
      offset += got;
      into += got;
      length -= got;
    }
  }

  // Asks the kernel to read ahead. In steps, because a longer request is cut off at the device's
  // read-ahead size without a word.
  void hint(uint64_t offset, uint64_t length) const {
    constexpr uint64_t kStep = 128 << 10;
    for (uint64_t done = 0; done < length; done += kStep)
      posix_fadvise(descriptor, static_cast<off_t>(offset + done),
                    static_cast<off_t>(std::min(kStep, length - done)), POSIX_FADV_WILLNEED);
  }
};

// Which pages are taken: each belongs to one place in one tree, or to a list of free pages.
//
// A tree's page is claimed before it is read, and a second claim is a fault at once, which ends
// every cycle. Runs (of overflow pages, of free ones) are only kept, and compared in `settle`: so
// memory grows with what was read, whatever sizes a hostile file claims.
class Owners {
 public:
  explicit Owners(uint64_t last_page) : last_page_(last_page) {}

  void claim(uint64_t page, const char* role) {
    within(page, 1, role);
    uint64_t& word = chunk_of(page / kChunk).words[page % kChunk / 64];
    const uint64_t bit = uint64_t{1} << page % 64;
    if (word & bit) twice(page);
    word |= bit;
    ++claimed_;
  }

  void claim_run(uint64_t first, uint64_t count, const char* role) {
    within(first, count, role);
    sorted_ &= runs_.empty() || runs_.back().first < first;
    runs_.push_back({first, count});
    claimed_ += count;
  }

  // Throws Fault when two claims overlap.
  void settle() {
    if (!sorted_)
      std::sort(runs_.begin(), runs_.end(),
                [](const Run& a, const Run& b) { return a.first < b.first; });
    sorted_ = true;
    for (size_t i = 1; i < runs_.size(); ++i)
      if (runs_[i].first - runs_[i - 1].first < runs_[i - 1].count) twice(runs_[i].first);
    for (const auto& [index, chunk] : chunks_)
      for (uint64_t w = 0; w < kChunk / 64; ++w)
        for (uint64_t word = chunk.words[w]; word; word &= word - 1) {
          const uint64_t page = index * kChunk + w * 64 + __builtin_ctzll(word);
          auto after = std::upper_bound(runs_.begin(), runs_.end(), page,
                                        [](uint64_t p, const Run& run) { return p < run.first; });
          if (after != runs_.begin() && page - std::prev(after)->first < std::prev(after)->count)
            twice(page);
        }
  }

  uint64_t claimed() const { return claimed_; }

 private:
  static constexpr uint64_t kChunk = 4096;
  struct Chunk {
    uint64_t words[kChunk / 64] = {};
  };
  struct Run {
    uint64_t first, count;
  };

  void within(uint64_t first, uint64_t count, const char* role) const {
    if (first < kMetaPages || first > last_page_ || count > last_page_ - first + 1)
      throw Fault{std::string(role) + " page " + std::to_string(first) +
                  " is outside the database"};
  }

  [[noreturn]] static void twice(uint64_t page) {
    throw Fault{"page " + std::to_string(page) + " is used in two places"};
  }

  Chunk& chunk_of(uint64_t index) {
    if (!last_ || index != last_index_) {
      last_ = &chunks_[index];  // an unordered_map's values stay where they are
      last_index_ = index;
    }
    return *last_;
  }

  uint64_t last_page_;
  uint64_t claimed_ = 0;
  bool sorted_ = true;
  std::vector<Run> runs_;
  std::unordered_map<uint64_t, Chunk> chunks_;
  Chunk* last_ = nullptr;
  uint64_t last_index_ = 0;
};

}  // namespace dltune
