// What Python cannot do itself: read a counter with the CPU's own instruction, and run a loop of
// which every instruction is known. See rdpmc.py and selftest.py.
#include <linux/perf_event.h>

#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// The protocol of linux/perf_event.h: the kernel changes `lock` whenever it changes the page.
inline void Barrier() { asm volatile("" ::: "memory"); }

#if defined(__x86_64__) || defined(__i386__)
inline uint64_t Rdpmc(uint32_t counter) {
  uint32_t low, high;
  asm volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(counter));
  return low | static_cast<uint64_t>(high) << 32;
}
#endif

}  // namespace

// The value of the calling thread's own event whose page this is. 0: done; 1: the kernel does not
// let it be read here; 2: the event has no counter at the moment (read it by the system call).
EXPORT int dltune_rdpmc(const volatile perf_event_mmap_page* page, uint64_t* value) {
#if defined(__x86_64__) || defined(__i386__)
  uint32_t sequence;
  do {
    sequence = page->lock;
    Barrier();
    if (!page->cap_user_rdpmc) return 1;
    const uint32_t index = page->index;
    int64_t count = page->offset;
    if (index == 0) return 2;
    const int unused = 64 - page->pmc_width;
    const uint64_t raw = Rdpmc(index - 1);
    // sign-extended: counters count up to their overflow
    count += static_cast<int64_t>(raw << unused) >> unused;
    *value = static_cast<uint64_t>(count);
    Barrier();
  } while (page->lock != sequence);
  return 0;
#else
  (void)page;
  (void)value;
  return 1;
#endif
}

// Runs 2 * `turns` instructions, and a few around them. 0: done; 1: not on this architecture.
EXPORT int dltune_loop(uint64_t turns) {
#if defined(__x86_64__)
  asm volatile("1: dec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
  return 0;
#elif defined(__aarch64__)
  asm volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(turns) : : "cc");
  return 0;
#else
  (void)turns;
  return 1;
#endif
}
