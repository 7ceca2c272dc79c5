// Looks at a thread, which computes with denormal numbers between some of them; prints what was found.
// The interpreter's main thread is this one.
#include <cfenv>
#include <cstdio>
#include <initializer_list>

#include "core/denormals.h"

extern "C" int Py_AddPendingCall(int (*call)(void*), void* argument) { return call(argument); }

namespace {

volatile float g_number, g_result;

void Compute(float number) {
  g_number = number;
  g_result = g_number * 0.5f;
  feclearexcept(FE_ALL_EXCEPT);  // as NumPy does it
}

}  // namespace

int main() {
  Compute(1e-40f);  // before the first look
  dltune::LookForDenormals();
  for (const float number : {1.0f, 1e-40f, 2.0f, 1e-41f, 1e-30f}) {
    Compute(number);
    dltune::LookForDenormals();
  }
  dltune::LookForDenormals();
  printf("%d of %d\n", dltune::g_denormal.load(), dltune::g_denormal_looks.load());
}
