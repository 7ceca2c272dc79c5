#include "denormals.h"

#include <dlfcn.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace dltune {

std::atomic<int> g_denormal_looks{0}, g_denormal{0};

#ifdef __SSE__

namespace {

// DE of MXCSR. It stays until it is cleared, and fenv.h does not know it, so that NumPy, which clears
// the other flags around each operation, leaves it.
constexpr unsigned kDenormalOperand = 1 << 1;

std::atomic<bool> g_asked{false};

int Look(void*) {
  static bool first = true;  // when what came before it was computed, nobody knows
  const unsigned state = _mm_getcsr();
  if (!first) {
    g_denormal_looks++;
    g_denormal += (state & kDenormalOperand) != 0;
  }
  first = false;
  _mm_setcsr(state & ~kDenormalOperand);
  g_asked = false;
  return 0;
}

}  // namespace

void LookForDenormals() {
  using AddPendingCall = int (*)(int (*)(void*), void*);
  static const auto add =
      reinterpret_cast<AddPendingCall>(dlsym(RTLD_DEFAULT, "Py_AddPendingCall"));
  if (add && !g_asked.exchange(true) && add(Look, nullptr) != 0) g_asked = false;
}

#else

void LookForDenormals() {}

#endif

}  // namespace dltune
