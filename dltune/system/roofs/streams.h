// Reading, and STREAM's triad (a = b + s * c; McCalpin, "Memory bandwidth and machine balance in
// current high performance computers", 1995), over so many bytes again and again.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace dltune {

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

}  // namespace dltune
