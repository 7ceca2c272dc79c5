// One page of an LMDB file, read with every length and offset checked before it is followed.
//
// Two layouts, both 64-bit little-endian: data version 1 (LMDB 0.9) has a 16-byte page header and
// counts offsets from the page's start; version 3 (LMDB 1.0) has 24 bytes (a transaction id more),
// counts offsets from the header's end, and pads keys to an even size. The names of fields are
// those of LMDB's mdb.c.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace dltune {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "LMDB files are read as they lie");

constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint64_t kMetaPages = 2;
constexpr int kDeepest = 32;  // CURSOR_STACK: LMDB itself follows no deeper tree

enum PageFlag : uint16_t {
  kBranch = 0x01,
  kLeaf = 0x02,
  kOverflow = 0x04,
  kLeaf2 = 0x20,
  kSubPage = 0x40,
};
enum NodeFlag : uint16_t { kBigData = 0x01, kSubData = 0x02, kDupData = 0x04 };
enum DbFlag : uint16_t {
  kReverseKey = 0x02,
  kDupSort = 0x04,
  kIntegerKey = 0x08,
  kDupFixed = 0x10,
  kIntegerDup = 0x20,
  kReverseDup = 0x40,
};

// Something in the file that cannot be: a sentence without the file's name.
struct Fault {
  std::string what;
};

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// MDB_db: 48 bytes, the same in both layouts.
struct Db {
  uint32_t pad;
  uint16_t flags;
  uint16_t depth;
  uint64_t branch_pages;
  uint64_t leaf_pages;
  uint64_t overflow_pages;
  uint64_t entries;
  uint64_t root;
};
static_assert(sizeof(Db) == 48);

struct Layout {
  uint32_t version;
  uint32_t page_size;

  uint32_t header() const { return version == 1 ? 16 : 24; }
  uint32_t base() const { return version == 1 ? 0 : 24; }
  uint32_t floor() const { return header() - base(); }  // `lower` of an empty page
  uint32_t key_room(uint32_t size) const { return version == 1 ? size : (size + 1) & ~1u; }
  uint32_t big_node() const { return version == 1 ? 8 : 24; }  // what stands for big data
  uint64_t overflow_pages(uint64_t size) const { return (header() - 1 + size) / page_size + 1; }

  uint64_t number(const uint8_t* page) const { return load<uint64_t>(page); }
  uint64_t txn(const uint8_t* page) const { return version == 1 ? 0 : load<uint64_t>(page + 8); }
  uint16_t pad(const uint8_t* page) const { return load<uint16_t>(page + header() - 8); }
  uint16_t flags(const uint8_t* page) const { return load<uint16_t>(page + header() - 6); }
  uint16_t lower(const uint8_t* page) const { return load<uint16_t>(page + header() - 4); }
  uint16_t upper(const uint8_t* page) const { return load<uint16_t>(page + header() - 2); }
  uint32_t run(const uint8_t* page) const { return load<uint32_t>(page + header() - 4); }
};

// A node of a leaf or branch page; `key` and `data` point into the page and lie within it.
struct Node {
  const uint8_t* key;
  const uint8_t* data;
  uint32_t key_size;
  uint32_t data_size;  // of the record; what lies in the node may be a reference to it
  uint16_t flags;
  uint64_t child;  // branch pages only

  bool is(uint16_t flag) const { return flags & flag; }
};

// Takes pages apart. Holds scratch memory, so that a page costs no allocation.
class PageReader {
 public:
  explicit PageReader(const Layout& layout) : layout_(layout), size_at_(32768, 0) {}

  // The nodes of a branch or leaf page, or of a sub-page of `span` bytes, in order.
  //
  // LMDB packs nodes without a gap from `upper` to the end. That they do so here, each once, is
  // checked: a changed bit in a pointer or size does not pass. Throws Fault.
  const std::vector<Node>& nodes(const uint8_t* page, uint32_t span, bool branch) {
    const uint32_t count = this->count(page, span);
    const uint32_t first = layout_.upper(page) + layout_.base();
    const uint32_t known = branch ? 0xffff : kBigData | kSubData | kDupData;
    nodes_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t at = load<uint16_t>(page + layout_.header() + 2 * i) + layout_.base();
      if (at < first || at + 8 > span || at % 2) return lost(i);
      Node& node = nodes_[i];
      const uint32_t low = load<uint32_t>(page + at);
      node.flags = load<uint16_t>(page + at + 4);
      node.key_size = load<uint16_t>(page + at + 6);
      node.key = page + at + 8;
      if (node.flags & ~known) return lost(i);
      uint64_t size = 8 + layout_.key_room(node.key_size);
      if (at + size > span) return lost(i);
      node.data = page + at + size;
      if (branch) {
        node.child = low | uint64_t{node.flags} << 32;
        node.data_size = 0;
      } else {
        node.data_size = low;
        size += node.is(kBigData) ? layout_.big_node() : low;
      }
      size = (size + 1) & ~uint64_t{1};
      if (at + size > span || size_at_[at / 2]) return lost(i);
      size_at_[at / 2] = static_cast<uint16_t>(size);
    }
    uint32_t at = first, seen = 0;
    while (at < span) {
      const uint32_t size = size_at_[at / 2];
      if (at % 2 || !size) return lost(seen);
      size_at_[at / 2] = 0;
      at += size;
      ++seen;
    }
    if (at != span || seen != count) return lost(seen);
    return nodes_;
  }

  // How many keys of `size` bytes a LEAF2 page or sub-page holds; they follow its header.
  uint32_t fixed(const uint8_t* page, uint32_t span, uint32_t& size) const {
    const uint32_t lower = layout_.lower(page);
    size = layout_.pad(page);
    if (lower < layout_.floor() || (lower - layout_.floor()) % 2)
      throw Fault{"its count of keys is damaged"};
    const uint32_t count = (lower - layout_.floor()) / 2;
    if (!size || uint64_t{count} * size > span - layout_.header())
      throw Fault{"its keys of a fixed size do not fit into it"};
    // each key took two bytes for `lower` to count it, and the rest of its size from `upper`
    const uint32_t taken = span - layout_.base() - layout_.upper(page);
    if (static_cast<uint16_t>(taken) != static_cast<uint16_t>(count * (size - 2)))
      throw Fault{"its keys do not have the size that its header says"};
    return count;
  }

  const Layout& layout() const { return layout_; }

 private:
  uint32_t count(const uint8_t* page, uint32_t span) const {
    const uint32_t lower = layout_.lower(page), upper = layout_.upper(page);
    if (lower < layout_.floor() || (lower - layout_.floor()) % 2 || lower > upper ||
        upper + layout_.base() > span)
      throw Fault{"the bounds of its free space are impossible"};
    return (lower - layout_.floor()) / 2;
  }

  const std::vector<Node>& lost(uint32_t i) {
    std::fill(size_at_.begin(), size_at_.end(), 0);
    throw Fault{"node " + std::to_string(i) + " is outside the area for nodes"};
  }

  Layout layout_;
  std::vector<Node> nodes_;
  std::vector<uint16_t> size_at_;  // by half the offset within the page
};

}  // namespace dltune
