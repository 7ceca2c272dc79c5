// The peak performance of this machine's cores: the kernels, run on several cores at once.

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace dltune {

// The same work on several cores at once: a pinned thread on each, all let go at one moment.

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline bool stand_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}

// `prepare(i)` on each core, then `work(i)` on all at once: nanoseconds from when the first begins
// until the last has ended; -1 when a thread may not stand on its CPU.
template <typename Prepare, typename Work>
int64_t together(const int32_t* cpus, int count, Prepare prepare, Work work) {
  std::atomic<int> waiting{count};
  std::atomic<bool> refused{false};
  std::vector<int64_t> begins(count), ends(count);
  auto one = [&](int i) {
    if (!stand_on(cpus[i])) refused = true;
    prepare(i);
    --waiting;
    // a core with other work: who waits must not keep the others from it
    for (int looks = 0; waiting > 0; ++looks) {
      if (looks > 10000) std::this_thread::yield();
    }
    begins[i] = now_ns();
    work(i);
    ends[i] = now_ns();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(one, i);
  for (auto& thread : threads) thread.join();
  if (refused) return -1;
  return *std::max_element(ends.begin(), ends.end()) -
         *std::min_element(begins.begin(), begins.end());
}

// Arithmetic at its peak: chains that do not wait for each other, in registers alone. Each kernel
// is compiled for its own instructions, so that one build runs everywhere; which of them this CPU
// has, the caller knows.

struct Peak {
  const char* name;
  void (*run)(int64_t rounds);
  int64_t operations;  // of a round
  bool tiles = false;  // of AMX, which the system gives on request
};

// Twelve chains of sums: two units that answer after four to six cycles are kept busy, and sixteen
// registers hold them, the factors and a product. That a factor may have changed has a product
// computed each time.
#define DLTUNE_PEAK(NAME, TARGET, VECTOR, SET, STEP)                                            \
  __attribute__((target(TARGET), noinline)) inline void NAME(int64_t rounds) {                  \
    VECTOR x = SET, y = x;                                                                      \
    asm volatile("" : "+v"(x), "+v"(y));                                                        \
    VECTOR a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, k = x, l = x;  \
    for (; rounds > 0; --rounds) {                                                              \
      STEP(a); STEP(b); STEP(c); STEP(d); STEP(e); STEP(f);                                     \
      STEP(g); STEP(h); STEP(i); STEP(j); STEP(k); STEP(l);                                     \
      asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f));                  \
      asm volatile("" : "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l));                  \
    }                                                                                           \
  }

// with ones in all registers a chain that grows stops at 2^24: there is no overflow
#define ANEW(v) asm volatile("" : "+v"(v))
#define SSE(v) ANEW(x); v = _mm_add_ps(v, _mm_mul_ps(x, y))
#define SSE_D(v) ANEW(x); v = _mm_add_pd(v, _mm_mul_pd(x, y))
#define AVX(v) ANEW(x); v = _mm256_add_ps(v, _mm256_mul_ps(x, y))
#define AVX_D(v) ANEW(x); v = _mm256_add_pd(v, _mm256_mul_pd(x, y))
#define FMA(v) v = _mm256_fmadd_ps(x, y, v)
#define FMA_D(v) v = _mm256_fmadd_pd(x, y, v)
#define FMA_512(v) v = _mm512_fmadd_ps(x, y, v)
#define FMA_512_D(v) v = _mm512_fmadd_pd(x, y, v)
DLTUNE_PEAK(sse2_float, "sse2", __m128, _mm_set1_ps(1), SSE)
DLTUNE_PEAK(sse2_double, "sse2", __m128d, _mm_set1_pd(1), SSE_D)
DLTUNE_PEAK(avx_float, "avx", __m256, _mm256_set1_ps(1), AVX)
DLTUNE_PEAK(avx_double, "avx", __m256d, _mm256_set1_pd(1), AVX_D)
DLTUNE_PEAK(fma_float, "avx2,fma", __m256, _mm256_set1_ps(1), FMA)
DLTUNE_PEAK(fma_double, "avx2,fma", __m256d, _mm256_set1_pd(1), FMA_D)
DLTUNE_PEAK(avx512_float, "avx512f", __m512, _mm512_set1_ps(1), FMA_512)
DLTUNE_PEAK(avx512_double, "avx512f", __m512d, _mm512_set1_pd(1), FMA_512_D)
#define VNNI(v) v = _mm512_dpbusd_epi32(v, x, y)
DLTUNE_PEAK(avx512_vnni, "avx512f,avx512vnni", __m512i, _mm512_set1_epi8(1), VNNI)

// compilers that know the younger ones
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define DLTUNE_YOUNGER 1
#define BF16(v) v = _mm512_dpbf16_ps(v, (__m512bh)x, (__m512bh)y)
DLTUNE_PEAK(avx512_bf16, "avx512f,avx512bf16", __m512, _mm512_set1_ps(1), BF16)
#define VNNI_256(v) v = _mm256_dpbusd_avx_epi32(v, x, y)
DLTUNE_PEAK(avx_vnni, "avx2,avxvnni", __m256i, _mm256_set1_epi8(1), VNNI_256)

// Six tiles of sums, of 16 rows of 64 bytes, and two of factors. An instruction takes 16 cycles
// and is answered after some fifty. GCC's _tile_loadconfig tells the compiler that it reads 8 bytes
// of the 64: without more the others are not written.
#define DLTUNE_TILES(NAME, TARGET, PRODUCT)                                       \
  __attribute__((target(TARGET), noinline)) inline void NAME(int64_t rounds) {           \
    alignas(64) unsigned char shapes[64] = {1};                                   \
    for (int tile = 0; tile < 8; ++tile) {                                        \
      shapes[16 + 2 * tile] = 64;                                                 \
      shapes[48 + tile] = 16;                                                     \
    }                                                                             \
    asm volatile("" : : "r"(shapes) : "memory");                                  \
    _tile_loadconfig(shapes);                                                     \
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);                   \
    _tile_zero(4); _tile_zero(5); _tile_zero(6); _tile_zero(7);                   \
    for (; rounds > 0; --rounds) {                                                \
      PRODUCT(0, 6, 7); PRODUCT(1, 6, 7); PRODUCT(2, 6, 7);                       \
      PRODUCT(3, 6, 7); PRODUCT(4, 6, 7); PRODUCT(5, 6, 7);                       \
    }                                                                             \
    _tile_release();                                                              \
  }
#define TILE_BF16(s, a, b) _tile_dpbf16ps(s, a, b)
#define TILE_INT8(s, a, b) _tile_dpbssd(s, a, b)
DLTUNE_TILES(amx_bf16, "amx-tile,amx-bf16", TILE_BF16)
DLTUNE_TILES(amx_int8, "amx-tile,amx-int8", TILE_INT8)
#endif

// A chain of products of integers, each three cycles after the one before on x86 cores of the last
// ten years: the frequency that the core has while it works, which a virtual machine does not tell.
inline void clock_cycles(int64_t rounds) {
  uint32_t chain = 3;
  for (; rounds > 0; --rounds) {
    asm volatile(
        "imul %0, %0\n imul %0, %0\n imul %0, %0\n imul %0, %0\n"
        "imul %0, %0\n imul %0, %0\n imul %0, %0\n imul %0, %0\n"
        : "+r"(chain));
  }
}

constexpr int64_t kChains = 12;

inline const Peak* peaks(int* count) {
  static const Peak all[] = {
      {"cycles", clock_cycles, 8 * 3},
      {"sse2_float", sse2_float, kChains * 4 * 2},
      {"sse2_double", sse2_double, kChains * 2 * 2},
      {"avx_float", avx_float, kChains * 8 * 2},
      {"avx_double", avx_double, kChains * 4 * 2},
      {"fma_float", fma_float, kChains * 8 * 2},
      {"fma_double", fma_double, kChains * 4 * 2},
      {"avx512_float", avx512_float, kChains * 16 * 2},
      {"avx512_double", avx512_double, kChains * 8 * 2},
      {"avx512_vnni", avx512_vnni, kChains * 64 * 2},
#ifdef DLTUNE_YOUNGER
      {"avx512_bf16", avx512_bf16, kChains * 32 * 2},
      {"avx_vnni", avx_vnni, kChains * 32 * 2},
      {"amx_bf16", amx_bf16, 6 * 16 * 16 * 32 * 2, true},
      {"amx_int8", amx_int8, 6 * 16 * 16 * 64 * 2, true},
#endif
  };
  *count = sizeof all / sizeof *all;
  return all;
}

// Whether the system lets this process use tiles (Linux's ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
inline bool permit_tiles() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

// Reading, and STREAM's triad (a = b + s * c; McCalpin, "Memory bandwidth and machine balance in
// current high performance computers", 1995), over so many bytes again and again.

struct Stream {
  const char* name;
  // `bytes` are of each array, a multiple of 512
  void (*run)(double* a, const double* b, const double* c, int64_t bytes, int64_t passes);
  int arrays;
};

// loads that nothing is done with: "v" has the value be there
#define DLTUNE_STREAMS(NAME, TARGET, VECTOR, LOAD, STORE, SET, TRIAD)                             \
  __attribute__((target(TARGET), noinline)) inline void NAME##_read(                              \
      double* a, const double*, const double*, int64_t bytes, int64_t passes) {                   \
    constexpr int64_t kStep = sizeof(VECTOR) / sizeof(double);                                    \
    const double* end = a + bytes / int64_t(sizeof(double));                                      \
    for (; passes > 0; --passes) {                                                                \
      for (const double* p = a; p != end; p += 8 * kStep) {                                       \
        VECTOR q = LOAD(p), r = LOAD(p + kStep), s = LOAD(p + 2 * kStep), t = LOAD(p + 3 * kStep); \
        asm volatile("" : : "v"(q), "v"(r), "v"(s), "v"(t));                                      \
        VECTOR u = LOAD(p + 4 * kStep), v = LOAD(p + 5 * kStep), w = LOAD(p + 6 * kStep),         \
               x = LOAD(p + 7 * kStep);                                                           \
        asm volatile("" : : "v"(u), "v"(v), "v"(w), "v"(x));                                      \
      }                                                                                           \
    }                                                                                             \
  }                                                                                               \
  __attribute__((target(TARGET), noinline)) inline void NAME##_triad(                             \
      double* a, const double* b, const double* c, int64_t bytes, int64_t passes) {               \
    constexpr int64_t kStep = sizeof(VECTOR) / sizeof(double);                                    \
    const int64_t end = bytes / int64_t(sizeof(double));                                          \
    VECTOR s = SET;                                                                               \
    asm volatile("" : "+v"(s));                                                                   \
    for (; passes > 0; --passes) {                                                                \
      for (int64_t i = 0; i != end; i += 4 * kStep) {                                             \
        STORE(a + i, TRIAD(LOAD(b + i), s, LOAD(c + i)));                                         \
        STORE(a + i + kStep, TRIAD(LOAD(b + i + kStep), s, LOAD(c + i + kStep)));                 \
        STORE(a + i + 2 * kStep, TRIAD(LOAD(b + i + 2 * kStep), s, LOAD(c + i + 2 * kStep)));     \
        STORE(a + i + 3 * kStep, TRIAD(LOAD(b + i + 3 * kStep), s, LOAD(c + i + 3 * kStep)));     \
      }                                                                                           \
      asm volatile("" : : : "memory");                                                            \
    }                                                                                             \
  }

#define TRIAD_SSE(b, s, c) _mm_add_pd(b, _mm_mul_pd(s, c))
#define TRIAD_AVX(b, s, c) _mm256_add_pd(b, _mm256_mul_pd(s, c))
#define TRIAD_512(b, s, c) _mm512_fmadd_pd(s, c, b)
DLTUNE_STREAMS(sse2, "sse2", __m128d, _mm_load_pd, _mm_store_pd, _mm_set1_pd(3), TRIAD_SSE)
DLTUNE_STREAMS(avx, "avx", __m256d, _mm256_load_pd, _mm256_store_pd, _mm256_set1_pd(3), TRIAD_AVX)
DLTUNE_STREAMS(avx512, "avx512f", __m512d, _mm512_load_pd, _mm512_store_pd, _mm512_set1_pd(3),
               TRIAD_512)

inline const Stream* streams(int* count) {
  static const Stream all[] = {
      {"sse2_read", sse2_read, 1},     {"sse2_triad", sse2_triad, 3}, {"avx_read", avx_read, 1},
      {"avx_triad", avx_triad, 3},     {"avx512_read", avx512_read, 1},
      {"avx512_triad", avx512_triad, 3},
  };
  *count = sizeof all / sizeof *all;
  return all;
}

// What this machine's cores reach at most: the C face of the kernels, by their names.
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
