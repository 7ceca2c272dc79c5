// One database: its tree, and the duplicates of its keys in pages and trees of their own. The list
// of free pages is one too.

#pragma once

#include "tree.h"

namespace dltune {

// Walks a database in key order and tells its sink of everything found:
//   key(node)                         each key, before what belongs to it
//   record(node, offset, size)        a record, `size` bytes at `offset` of the file
//   big(node, first, pages)           before its record: the overflow pages that it begins on
//   named(node, db)                   a named database's record
//   value(node, data, offset, size)   one of a key's duplicates
//   duplicates(), duplicate_tree(db)  before a key's first duplicate; before those in a tree
//   duplicate_tree_done(db)           after them
//   faulty(number, fault)             a page that cannot be used
// `sink.keys` and `sink.values` hear of the trees' levels: `level(branch)`, `child(i, j, node)`,
// `leaf(i)`.
template <class Sink>
class Database {
 public:
  Database(const File& file, Owners& owners, Tell tell, Sink& sink)
      : file_(file), sink_(sink), outer_(file, owners, tell), inner_(file, owners, nullptr) {}

  void walk(const Db& db) {
    db_ = &db;
    outer_.walk(db, Visitor<decltype(sink_.keys)>{*this, sink_.keys, nullptr});
  }

 private:
  // Of one of the trees; `key`: the one whose duplicates the tree holds, if it does.
  template <class Levels>
  struct Visitor {
    Database& database;
    Levels& levels;
    const Node* key;
    void level(bool branch) { levels.level(branch); }
    void child(size_t i, size_t j, const Node& node) { levels.child(i, j, node); }
    void faulty(uint64_t number, const Fault& fault) { database.sink_.faulty(number, fault); }
    void leaf(size_t i, uint64_t number, const uint8_t* page) {
      const uint32_t span = database.file_.layout.page_size;
      levels.leaf(i);
      if (!key) return database.leaf(number, page);
      database.values(*key, page, span, uint64_t{number} * span);
    }
  };

  void leaf(uint64_t number, const uint8_t* page) {
    const uint32_t span = file_.layout.page_size;
    if (file_.layout.flags(page) & kLeaf2) throw Fault{"it is a page of duplicates"};
    for (const Node& node : outer_.reader().nodes(page, span, false)) {
      if (!node.key_size) throw Fault{"a record has no key"};
      sink_.key(node);
      add(number * span + (node.data - page), node);
    }
  }

  void add(uint64_t offset, const Node& node) {
    const bool duplicates = db_->flags & kDupSort;
    if (node.flags == 0) return sink_.record(node, offset, node.data_size);
    if (node.flags == kBigData) return big(node);
    if (node.flags == kSubData && node.data_size == sizeof(Db))
      return sink_.named(node, load<Db>(node.data));
    if (node.flags == kDupData && duplicates) {
      if (node.data_size < file_.layout.header() || !(file_.layout.flags(node.data) & kSubPage))
        throw Fault{"a key's duplicates are not a page"};
      sink_.duplicates();
      return values(node, node.data, node.data_size, offset);
    }
    if (node.flags == (kDupData | kSubData) && duplicates && node.data_size == sizeof(Db)) {
      const Db tree = load<Db>(node.data);
      sink_.duplicates();
      sink_.duplicate_tree(tree);
      const uint64_t before = sink_.values_seen;
      inner_.walk(tree, Visitor<decltype(sink_.values)>{*this, sink_.values, &node});
      if (sink_.values_seen - before != tree.entries)
        throw Fault{"a key's duplicates are miscounted"};
      sink_.duplicate_tree_done(tree);
      return;
    }
    throw Fault{"a record has impossible flags: " + std::to_string(node.flags)};
  }

  void big(const Node& node) {
    const uint64_t first = load<uint64_t>(node.data);
    const uint64_t pages = file_.layout.overflow_pages(node.data_size);
    if (file_.layout.version != 1 && load<uint64_t>(node.data + 16) < pages)
      throw Fault{"a record is larger than its overflow pages"};
    sink_.big(node, first, pages);
    sink_.record(node, first * file_.layout.page_size + file_.layout.header(), node.data_size);
  }

  // Duplicates are the keys of their page.
  void values(const Node& key, const uint8_t* page, uint32_t span, uint64_t offset) {
    if (file_.layout.flags(page) & kLeaf2) {
      uint32_t size = 0;
      const uint32_t count = inner_.reader().fixed(page, span, size);
      for (uint32_t i = 0; i < count; ++i) {
        const uint64_t at = file_.layout.header() + uint64_t{i} * size;
        sink_.value(key, page + at, offset + at, size);
      }
      return;
    }
    for (const Node& node : inner_.reader().nodes(page, span, false)) {
      if (node.flags || node.data_size) throw Fault{"a duplicate has data"};
      sink_.value(key, node.key, offset + (node.key - page), node.key_size);
    }
  }

  const File& file_;
  Sink& sink_;
  const Db* db_ = nullptr;
  Tree outer_, inner_;
};

// Claims the pages of one record of the list of free pages, a database whose records are lists of
// page numbers, by the transaction that freed them: a count, then so many page numbers, from the last
// to the first. Returns how many they are.
inline uint64_t claim_free(const File& file, Owners& owners, const Node& node, uint64_t offset,
                           uint64_t size) {
  if (node.key_size != 8) throw Fault{"a list of free pages has no transaction"};
  const uint64_t txn = load<uint64_t>(node.key);
  if (!txn || txn > file.txn)
    throw Fault{"a list of free pages has transaction " + std::to_string(txn)};
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
