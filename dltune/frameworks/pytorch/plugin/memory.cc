// Counts the bytes that PyTorch's CPU allocator has given out since it was asked to.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "../../../native/core/child.h"

namespace dltune {
namespace {

std::atomic<int64_t> g_live{0}, g_peak{0};

void Take(int64_t bytes) {
  const int64_t live = g_live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (live > peak && !g_peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

// What each block was asked for: an allocator below may have rounded it up.
class Blocks {
 public:
  void Add(void* at, size_t bytes) {
    Part& part = PartOf(at);
    std::lock_guard lock(part.mutex);
    part.bytes[at] = bytes;
  }

  size_t Remove(void* at) {
    Part& part = PartOf(at);
    std::lock_guard lock(part.mutex);
    const auto found = part.bytes.find(at);
    if (found == part.bytes.end()) return 0;
    const size_t bytes = found->second;
    part.bytes.erase(found);
    return bytes;
  }

 private:
  struct alignas(64) Part {
    std::mutex mutex;
    std::unordered_map<void*, size_t> bytes;
  };

  Part& PartOf(void* at) { return parts_[(reinterpret_cast<uintptr_t>(at) >> 6) % parts_.size()]; }

  std::array<Part, 16> parts_;
};

Blocks& g_blocks = *new Blocks;  // memory is given back after destructors have run, too
c10::DeleterFnPtr g_delete = nullptr;

void Delete(void* at) {
  if (!InChild()) Take(-static_cast<int64_t>(g_blocks.Remove(at)));
  g_delete(at);
}

class Counting final : public c10::Allocator {
 public:
  explicit Counting(c10::Allocator* counted) : counted_(counted) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = counted_->allocate(bytes);
    void* const at = data.get();
    // a block whose deleter is given something else than its memory cannot be told again
    if (!at || InChild() || data.get_context() != at) return data;
    if (!data.compare_exchange_deleter(g_delete, &Delete)) return data;
    g_blocks.Add(at, bytes);
    Take(static_cast<int64_t>(bytes));
    return data;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    counted_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* counted_;
};

}  // namespace
}  // namespace dltune

#define DLTUNE_API extern "C" __attribute__((visibility("default")))

// From now on; whether it can. Not while another thread allocates for the first time.
DLTUNE_API int dltune_count_memory() {
  using dltune::g_delete;
  if (g_delete) return 1;
  c10::Allocator* const counted = c10::GetAllocator(c10::DeviceType::CPU);
  if (!(g_delete = counted->raw_deleter())) return 0;
  c10::SetAllocator(c10::DeviceType::CPU, new dltune::Counting(counted), 255);
  return 1;
}

// Bytes now: those of blocks from before, which count as nothing, are not in it.
DLTUNE_API int64_t dltune_memory_live() { return dltune::g_live.load(std::memory_order_relaxed); }

// The most since the last time that this was asked.
DLTUNE_API int64_t dltune_memory_peak() {
  return dltune::g_peak.exchange(dltune::g_live.load(std::memory_order_relaxed));
}
