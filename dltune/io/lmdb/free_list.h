// The list of free pages: a database whose records are lists of page numbers, by the transaction
// that freed them.

#pragma once

#include "database.h"

namespace dltune {

// Claims the pages of one record of it: a count, then so many page numbers, from the last to the
// first. Returns how many they are.
inline uint64_t claim_free(const File& file, Owners& owners, const Node& node, uint64_t offset,
                           uint64_t size) {
  if (node.key_size != 8) throw Fault{"a list of free pages has no transaction"};
  const uint64_t txn = load<uint64_t>(node.key);
  if (!txn || txn > file.txn)
    throw Fault{"a list of free pages is of transaction " + std::to_string(txn)};
  if (size < 8) throw Fault{"a list of free pages is cut off"};
  uint64_t words[4096];
  file.read(offset, reinterpret_cast<uint8_t*>(words), 8);
  const uint64_t count = words[0];
  if (count > size / 8 - 1) throw Fault{"a list of free pages is cut off"};
  uint64_t last = kNoPage, lowest = 0, run = 0;
  for (uint64_t done = 0; done < count;) {
    const uint64_t many = std::min<uint64_t>(count - done, 4096);
    file.read(offset + 8 + done * 8, reinterpret_cast<uint8_t*>(words), many * 8);
    for (uint64_t i = 0; i < many; ++i) {
      if (words[i] >= last) throw Fault{"a list of free pages is out of order"};
      last = words[i];
      if (run && last + 1 == lowest) {
        ++run;
      } else {
        if (run) owners.claim_run(lowest, run, "free");
        run = 1;
      }
      lowest = last;
    }
    done += many;
  }
  if (run) owners.claim_run(lowest, run, "free");
  return count;
}

}  // namespace dltune
