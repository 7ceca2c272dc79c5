// What this machine's cores reach at most: the C face of the kernels, by their names.
#include <sys/mman.h>

#include <cstring>
#include <memory>

#include "peaks.h"
#include "streams.h"
#include "together.h"

namespace dltune {
namespace {

enum Refusal : int64_t { kUnknown = -1, kPinned = -2, kNotPermitted = -3, kNoMemory = -4 };

template <typename Kernel>
const Kernel* find(const Kernel* all, int count, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (!std::strcmp(all[i].name, name)) return &all[i];
  }
  return nullptr;
}

// Where the arrays of one core are: pages that the core itself touched first, huge where there are
// such, so that the walk of page tables is no part of a bandwidth.
struct Arrays {
  char* start = nullptr;
  int64_t bytes = 0;

  bool take(int64_t wanted) {
    void* at = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return false;
    start = static_cast<char*>(at);
    bytes = wanted;
    madvise(at, wanted, MADV_HUGEPAGE);
    return true;
  }
  ~Arrays() {
    if (start) munmap(start, bytes);
  }
};

struct Memory {
  std::vector<int32_t> cpus;
  std::vector<Arrays> arrays;
  int64_t turn = 0;
};

constexpr int64_t kPage = 4096;
// Arrays begin at other places of a page, so that no load looks like one of a store before it.
constexpr int64_t kApart = 1344;
constexpr int64_t kRoom = 4 * kPage;
// Each turn works at another place, as far as there is room: which pages it is on decides how well
// they fit into a cache, by a third for the first level.
constexpr int64_t kOn = 577 * kPage;

}  // namespace
}  // namespace dltune

using namespace dltune;

#define EXPORT extern "C" __attribute__((visibility("default")))

// Nanoseconds of `rounds` of the kernel on each CPU at once, `operations` those of all of them; or
// a Refusal.
EXPORT int64_t dltune_roofs_peak(const char* name, const int32_t* cpus, int32_t count,
                                 int64_t rounds, int64_t* operations) {
  int known = 0;
  const Peak* all = peaks(&known);
  const Peak* kernel = find(all, known, name);
  if (!kernel) return kUnknown;
  if (kernel->tiles && !permit_tiles()) return kNotPermitted;
  *operations = kernel->operations * rounds * count;
  const int64_t took = together(
      cpus, count, [](int) {}, [&](int) { kernel->run(rounds); });
  return took < 0 ? int64_t{kPinned} : took;
}

// Arrays for each CPU, of so many bytes; null when there is no memory for them.
EXPORT void* dltune_roofs_memory(const int32_t* cpus, int32_t count, const int64_t* bytes) {
  auto memory = std::make_unique<Memory>();
  memory->cpus.assign(cpus, cpus + count);
  memory->arrays = std::vector<Arrays>(count);
  for (int i = 0; i < count; ++i) {
    if (!memory->arrays[i].take(bytes[i] + kRoom)) return nullptr;
  }
  const int64_t took = together(
      cpus, count, [](int) {},
      [&](int i) { std::memset(memory->arrays[i].start, 0, memory->arrays[i].bytes); });
  return took < 0 ? nullptr : memory.release();
}

EXPORT void dltune_roofs_release(void* memory) { delete static_cast<Memory*>(memory); }

// Nanoseconds of `passes` over so many bytes of each of the first `count` CPUs at once, `moved`
// the bytes of all of them; or a Refusal. One pass before, which is not timed, fills the caches.
EXPORT int64_t dltune_roofs_stream(void* memory, const char* name, int32_t count,
                                   const int64_t* bytes, int64_t passes, int64_t* moved) {
  auto& there = *static_cast<Memory*>(memory);
  int known = 0;
  const Stream* all = streams(&known);
  const Stream* kernel = find(all, known, name);
  if (!kernel) return kUnknown;
  auto each = [&](int i) { return bytes[i] / kernel->arrays / 512 * 512; };
  auto run = [&](int i, int64_t times) {
    const int64_t size = each(i), stride = (size + kPage - 1) / kPage * kPage + kApart / 64 * 64;
    const int64_t spare = (there.arrays[i].bytes - kRoom - bytes[i]) / kPage + 1;
    char* start = there.arrays[i].start + there.turn * kOn / kPage % spare * kPage;
    auto array = [&](int k) { return reinterpret_cast<double*>(start + k * stride); };
    kernel->run(array(0), array(1), array(2), size, times);
  };
  *moved = 0;
  ++there.turn;
  for (int i = 0; i < count; ++i) {
    if (each(i) == 0 || bytes[i] + kRoom > there.arrays[i].bytes) return kNoMemory;
    *moved += each(i) * kernel->arrays * passes;
  }
  const int64_t took = together(
      there.cpus.data(), count, [&](int i) { run(i, 1); }, [&](int i) { run(i, passes); });
  return took < 0 ? int64_t{kPinned} : took;
}
