// Whether a tensor may have arrived in Horovod's queue, so that a background thread with nothing to
// send can rest until one does.
//
// Whoever submits a tensor does so under a mutex of the queue. Horovod's library reaches
// pthread_mutex_unlock through a slot of its own; there, and in no other library, the call goes
// through us. Any call by a thread other than the background thread counts: one too many costs a
// cycle, which Horovod would have run anyway.
#pragma once

#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"

namespace dltune {

class Arrivals {
 public:
  static unsigned count() { return __atomic_load_n(&count_, __ATOMIC_SEQ_CST); }

  static void one_more() {
    __atomic_add_fetch(&count_, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&resting_, __ATOMIC_SEQ_CST))
      syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  // Until there were more than `seen`, at most so many seconds.
  static void wait(unsigned seen, double most) {
    __atomic_add_fetch(&resting_, 1, __ATOMIC_SEQ_CST);
    for (double left = most, end = now() + most; left > 0 && count() == seen; left = end - now()) {
      const timespec t = span(left);
      syscall(SYS_futex, &count_, FUTEX_WAIT_PRIVATE, seen, &t, nullptr, 0);
    }
    __atomic_sub_fetch(&resting_, 1, __ATOMIC_SEQ_CST);
  }

  // In a forked child, where nobody rests.
  static void forget() { resting_ = 0; }

 private:
  inline static unsigned count_ = 0, resting_ = 0;
};

// Lets the object that holds `within` call `replacement` where it calls pthread_mutex_unlock.
// False when it has no slot for that, or one that cannot be replaced.
class Slot {
 public:
  Slot(const void* within, int (*replacement)(pthread_mutex_t*))
      : within_(reinterpret_cast<ElfW(Addr)>(within)), replacement_(replacement) {}

  bool replace() {
    dl_iterate_phdr(
        [](dl_phdr_info* object, size_t, void* self) {
          return static_cast<Slot*>(self)->visit(*object) ? 1 : 0;
        },
        this);
    return replaced_ && !failed_;
  }

 private:
#if defined(__x86_64__)
  static constexpr unsigned kJump = R_X86_64_JUMP_SLOT, kData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
  static constexpr unsigned kJump = R_AARCH64_JUMP_SLOT, kData = R_AARCH64_GLOB_DAT;
#else
  static constexpr unsigned kJump = ~0u, kData = ~0u;
#endif

  bool visit(const dl_phdr_info& object) {
    bool here = false;
    const ElfW(Phdr) *dynamic = nullptr, *sealed = nullptr;
    for (int i = 0; i < object.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object.dlpi_phdr[i];
      const ElfW(Addr) begin = object.dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_LOAD && within_ >= begin && within_ < begin + part.p_memsz) here = true;
      if (part.p_type == PT_DYNAMIC) dynamic = &part;
      if (part.p_type == PT_GNU_RELRO) sealed = &part;
    }
    if (here && dynamic) look(object.dlpi_addr, *dynamic, sealed);
    return here;
  }

  void look(ElfW(Addr) base, const ElfW(Phdr)& dynamic, const ElfW(Phdr)* sealed) {
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    const ElfW(Rela) *jumps = nullptr, *data = nullptr;
    size_t jump_bytes = 0, data_bytes = 0;
    // glibc makes these addresses absolute when it loads an object, other loaders may not
    const auto at = [base](ElfW(Addr) a) { return a < base ? base + a : a; };
    for (auto* e = reinterpret_cast<const ElfW(Dyn)*>(base + dynamic.p_vaddr); e->d_tag; ++e) {
      const ElfW(Addr) address = at(e->d_un.d_ptr);
      if (e->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (e->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(address);
      if (e->d_tag == DT_JMPREL) jumps = reinterpret_cast<const ElfW(Rela)*>(address);
      if (e->d_tag == DT_RELA) data = reinterpret_cast<const ElfW(Rela)*>(address);
      if (e->d_tag == DT_PLTRELSZ) jump_bytes = e->d_un.d_val;
      if (e->d_tag == DT_RELASZ) data_bytes = e->d_un.d_val;
    }
    if (!symbols || !names) return;
    const auto all = [&](const ElfW(Rela)* first, size_t bytes) {
      for (size_t i = 0; first && i < bytes / sizeof *first; ++i) {
        const unsigned type = ELF64_R_TYPE(first[i].r_info);
        if (type != kJump && type != kData) continue;
        const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(first[i].r_info)];
        if (strcmp(names + symbol.st_name, "pthread_mutex_unlock") == 0)
          put(base, base + first[i].r_offset, sealed);
      }
    };
    all(jumps, jump_bytes);
    all(data, data_bytes);
  }

  // What was made read-only when the object had been loaded is made so again.
  void put(ElfW(Addr) base, ElfW(Addr) slot, const ElfW(Phdr)* sealed) {
    const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
    const auto down = [page](ElfW(Addr) a) { return a & ~(page - 1); };
    void* const start = reinterpret_cast<void*>(down(slot));
    // whole pages only, as the loader has it
    const bool closed = sealed && slot >= down(base + sealed->p_vaddr) &&
                        slot < down(base + sealed->p_vaddr + sealed->p_memsz);
    if (closed && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
      failed_ = true;
      return;
    }
    __atomic_store_n(reinterpret_cast<void**>(slot), reinterpret_cast<void*>(replacement_),
                     __ATOMIC_RELEASE);
    if (closed) mprotect(start, page, PROT_READ);
    replaced_ = true;
  }

  const ElfW(Addr) within_;
  int (*const replacement_)(pthread_mutex_t*);
  bool replaced_ = false, failed_ = false;
};

}  // namespace dltune
