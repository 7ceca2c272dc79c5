// Structs that Python lays out again with ctypes: each tells its size, which is compared when the
// library is loaded (binding.py).
#pragma once

#define DLTUNE_MIRRORED(name, type)                                                      \
  extern "C" __attribute__((visibility("default"))) int dltune_sizeof_##name() {         \
    return static_cast<int>(sizeof(type));                                               \
  }
