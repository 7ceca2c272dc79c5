// Where every record of one database lies, and its keys, without touching overflow pages.

#include <memory>

#include "../../../native/mirrored.h"
#include "database.h"

namespace dltune {
namespace {

struct AnyOrder {
  void level(bool) {}
  void child(size_t, size_t, const Node&) {}
  void leaf(size_t) {}
};

// What the two sinks of Database here have in common: they look at no order of keys, and a page
// that cannot be used ends the walk.
class Collector {
 public:
  AnyOrder keys, values;
  uint64_t values_seen = 0;
  void key(const Node&) {}
  void duplicate_tree_done(const Db&) {}
  void big(const Node&, uint64_t first, uint64_t pages) {
    owners_.claim_run(first, pages, "overflow");
  }
  [[noreturn]] void faulty(uint64_t number, const Fault& fault) {
    throw Fault{"page " + std::to_string(number) + ": " + fault.what};
  }

 protected:
  Collector(const File& file, Owners& owners) : file_(file), owners_(owners) {}

  const File& file_;
  Owners& owners_;
};

class Indexer : public Collector {
 public:
  Indexer(const File& file, Owners& owners, Tell tell)
      : Collector(file, owners), database_(file, owners, tell, *this) {}

  std::vector<uint64_t> offsets, key_ends;
  std::vector<uint32_t> sizes;
  std::vector<uint8_t> keys_;
  // of the named databases found, which are no records
  std::vector<uint8_t> names;
  std::vector<uint64_t> name_ends;
  std::vector<Db> named_;

  void run(const Db& db) {
    reserve(db);
    database_.walk(db);
    if (offsets.size() + named_.size() != db.entries)
      throw Fault{"it has " + std::to_string(offsets.size() + named_.size()) +
                  " records where its header says " + std::to_string(db.entries)};
  }

  void duplicates() {}
  void duplicate_tree(const Db&) {}
  void record(const Node& node, uint64_t offset, uint32_t size) {
    if (offset + size > file_.size)
      throw Fault{"a record at byte " + std::to_string(offset) + " ends beyond the file's end"};
    offsets.push_back(offset);
    sizes.push_back(size);
    keys_.insert(keys_.end(), node.key, node.key + node.key_size);
    key_ends.push_back(keys_.size());
  }
  void value(const Node& node, const uint8_t*, uint64_t offset, uint32_t size) {
    ++values_seen;
    record(node, offset, size);
  }
  void named(const Node& node, const Db& db) {
    names.insert(names.end(), node.key, node.key + node.key_size);
    name_ends.push_back(names.size());
    named_.push_back(db);
  }

 private:
  void reserve(const Db& db) {
    // a count from the file is not to be trusted with memory
    const uint64_t pages = file_.size / file_.layout.page_size;
    const uint64_t likely = std::min({db.entries, pages * 256, uint64_t{1} << 24});
    offsets.reserve(likely);
    sizes.reserve(likely);
    key_ends.reserve(likely);
    keys_.reserve(likely * 8);
  }

  Database<Indexer> database_;
};

// Claims the free pages, so that a record that lies on one does not pass.
class FreePages : public Collector {
 public:
  FreePages(const File& file, Owners& owners)
      : Collector(file, owners), database_(file, owners, nullptr, *this) {}

  void run(const Db& db) { database_.walk(db); }

  void duplicates() { refuse(); }
  void duplicate_tree(const Db&) { refuse(); }
  void value(const Node&, const uint8_t*, uint64_t, uint32_t) { refuse(); }
  void named(const Node&, const Db&) { refuse(); }
  void record(const Node& node, uint64_t offset, uint32_t size) {
    claim_free(file_, owners_, node, offset, size);
  }

 private:
  [[noreturn]] static void refuse() {
    throw Fault{"the list of free pages contains other data"};
  }

  Database<FreePages> database_;
};

// As in lmdb_binding.py.
struct Records {
  uint64_t count;
  const uint64_t* offsets;
  const uint32_t* sizes;
  const uint8_t* keys;
  const uint64_t* key_ends;
  uint64_t named_count;
  const uint8_t* names;
  const uint64_t* name_ends;
  const Db* named;
};

struct Scan {
  File file;
  Owners owners;
  std::unique_ptr<Indexer> indexer;
};

}  // namespace
}  // namespace dltune

using namespace dltune;

DLTUNE_MIRRORED(File, File)
DLTUNE_MIRRORED(Db, Db)
DLTUNE_MIRRORED(Records, Records)

#define DLTUNE_EXPORT extern "C" __attribute__((visibility("default")))

// A scan covers one snapshot; its databases are indexed one after the other, and share what is
// known of page owners.
DLTUNE_EXPORT void* dltune_lmdb_scan_new(const File* file) {
  posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_RANDOM);  // hints alone say what to fetch
  return new (std::nothrow) Scan{*file, Owners(file->last_page), nullptr};
}

DLTUNE_EXPORT void dltune_lmdb_scan_delete(void* scan) { delete static_cast<Scan*>(scan); }

// 0: done, `into` points to memory that lives until the next call. 1: a fault, told in `why`.
// 2: stopped by `tell`. 3: out of memory.
DLTUNE_EXPORT int dltune_lmdb_index(void* handle, const Db* db, Tell tell, Records* into, char* why,
                                    int why_size) {
  Scan& scan = *static_cast<Scan*>(handle);
  return guarded(why, why_size, [&] {
    scan.indexer = std::make_unique<Indexer>(scan.file, scan.owners, tell);
    scan.indexer->run(*db);
    const Indexer& made = *scan.indexer;
    *into = {made.offsets.size(), made.offsets.data(),   made.sizes.data(),
             made.keys_.data(),   made.key_ends.data(),  made.named_.size(),
             made.names.data(),   made.name_ends.data(), made.named_.data()};
  });
}

// After the last database: that no page has two owners, be it a record or the list of free pages.
// Returns as dltune_lmdb_index.
DLTUNE_EXPORT int dltune_lmdb_settle(void* handle, const Db* free_db, char* why, int why_size) {
  Scan& scan = *static_cast<Scan*>(handle);
  return guarded(why, why_size, [&] {
    FreePages(scan.file, scan.owners).run(*free_db);
    scan.owners.settle();
  });
}
