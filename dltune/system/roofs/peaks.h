// Arithmetic at its peak: chains that do not wait for each other, in registers alone. Each kernel
// is compiled for its own instructions, so that one build runs everywhere; which of them this CPU
// has, the caller knows.
#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace dltune {

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

}  // namespace dltune
