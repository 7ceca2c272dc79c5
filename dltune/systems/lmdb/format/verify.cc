// The structure of the whole file: every page in one place, every tree in order, every count right.

#include "../../../native/mirrored.h"
#include "database.h"

namespace dltune {
namespace {

// LMDB's own comparison functions (mdb_default_cmp).
enum class By { kBytes, kBytesBackwards, kInteger };

int compare(By by, const std::string& a, const std::string& b) {
  if (by == By::kBytes) return a.compare(b);
  // integers of one size are little-endian: the last byte counts most
  auto x = a.rbegin(), y = b.rbegin();
  for (; x != a.rend() && y != b.rend(); ++x, ++y)
    if (*x != *y) return static_cast<uint8_t>(*x) < static_cast<uint8_t>(*y) ? -1 : 1;
  return a.size() < b.size() ? -1 : a.size() > b.size();
}

// Whether one tree's keys are in order. A branch's keys bound its children: all of a child's keys
// are at or above its own bound and below the next child's.
class Order {
 public:
  explicit Order(By by) : by_(by) {}

  uint64_t branches = 0, leaves = 0;  // pages, counted on the way

  void begin() {
    bounds_.assign(1, "");
    next_ = bounds_;  // of the first level
    any_ = false;
    page_ = 0;
  }
  void level(bool) {
    bounds_.swap(next_);
    next_.clear();
    any_ = false;
    last_page_ = kNoPage;
  }
  void child(size_t i, size_t j, const Node& node) {
    if (i != last_page_) ++branches;
    last_page_ = i;
    // the first child has its parent's bound; the key beside it is not used
    if (j == 0) {
      next_.push_back(bounds_[i]);
      return;
    }
    std::string bound(reinterpret_cast<const char*>(node.key), node.key_size);
    if (j > 1 && compare(by_, next_.back(), bound) >= 0) throw Fault{"its keys are out of order"};
    if ((i > 0 && j == 1 && compare(by_, bounds_[i], bound) >= 0) ||
        (i + 1 < bounds_.size() && compare(by_, bound, bounds_[i + 1]) >= 0))
      throw Fault{"its keys are outside the bounds that its parent sets"};
    next_.push_back(std::move(bound));
  }
  void leaf(size_t i) {
    ++leaves;
    page_ = i;
  }
  void key(const uint8_t* data, size_t size) {
    std::string key(reinterpret_cast<const char*>(data), size);
    if (any_ && compare(by_, last_, key) >= 0) throw Fault{"its keys are out of order"};
    if ((page_ > 0 && compare(by_, key, bounds_[page_]) < 0) ||
        (page_ + 1 < bounds_.size() && compare(by_, key, bounds_[page_ + 1]) >= 0))
      throw Fault{"its keys are outside the bounds that its parent sets"};
    last_.swap(key);
    any_ = true;
  }

 private:
  By by_;
  std::vector<std::string> bounds_, next_;  // by page of the level
  std::string last_;
  bool any_ = false;
  size_t page_ = 0;
  uint64_t last_page_ = kNoPage;
};

// As in lmdb_binding.py.
struct Counts {
  uint64_t databases, records, used, free, faults;
};

struct Report {
  static constexpr uint64_t kShown = 50;
  uint64_t faults = 0;
  std::string text;

  void fault(const std::string& where, const std::string& what) {
    if (++faults <= kShown) text += where + ": " + what + "\n";
  }
};

// Checks one database; also the sink of its walk.
class Checker {
 public:
  Checker(const File& file, Owners& owners, Tell tell, Report& report, std::string where,
          const Db& db, bool free_list)
      : keys(free_list                     ? By::kInteger
             : db.flags & kReverseKey      ? By::kBytesBackwards
             : db.flags & kIntegerKey      ? By::kInteger
                                           : By::kBytes),
        values(db.flags & kIntegerDup      ? By::kInteger
               : db.flags & kReverseDup    ? By::kBytesBackwards
                                           : By::kBytes),
        file_(file), owners_(owners), report_(report), where_(std::move(where)), db_(db),
        free_list_(free_list), database_(file, owners, tell, *this) {}

  Order keys, values;
  uint64_t values_seen = 0, records = 0, free_pages = 0;
  std::vector<std::pair<std::string, Db>> found;  // named databases

  void run() {
    const uint64_t before = report_.faults;
    constexpr uint16_t of_duplicates = kDupFixed | kIntegerDup | kReverseDup;
    if (db_.flags & of_duplicates && !(db_.flags & kDupSort))
      report_.fault(where_, "its flags allow duplicates that it cannot have");
    // the list of free pages keeps the page size there
    if (!free_list_ && db_.pad && !fits(db_.pad))
      report_.fault(where_, "its key size is impossible");
    keys.begin();
    values.begin();
    try {
      database_.walk(db_);
    } catch (const Fault& fault) {
      report_.fault(where_, fault.what);
    }
    if (report_.faults != before) return;  // what was left out would be counted as missing
    count("records", records + found.size(), db_.entries);
    count("overflow pages", overflow_, db_.overflow_pages);
    // LMDB up to 0.9.35 did not count the trees of duplicates (ITS#9388)
    if (db_.branch_pages < keys.branches || db_.branch_pages > keys.branches + values.branches)
      count("branch pages", keys.branches + values.branches, db_.branch_pages);
    if (db_.leaf_pages < keys.leaves || db_.leaf_pages > keys.leaves + values.leaves)
      count("leaf pages", keys.leaves + values.leaves, db_.leaf_pages);
  }

  void key(const Node& node) { keys.key(node.key, node.key_size); }
  void duplicates() { values.begin(); }
  void duplicate_tree(const Db& tree) {
    if (tree.flags & ~(kDupFixed | kIntegerKey))
      throw Fault{"a tree of duplicates has impossible flags"};
    if (tree.flags & kDupFixed ? !fits(tree.pad) : tree.pad)
      throw Fault{"a tree of duplicates has an impossible record size"};
    branches_before_ = values.branches;
    leaves_before_ = values.leaves;
  }
  void duplicate_tree_done(const Db& tree) const {
    if (values.branches - branches_before_ != tree.branch_pages ||
        values.leaves - leaves_before_ != tree.leaf_pages || tree.overflow_pages)
      throw Fault{"the pages of a tree of duplicates are miscounted"};
  }
  void value(const Node&, const uint8_t* data, uint64_t offset, uint32_t size) {
    ++values_seen;
    values.key(data, size);
    inside(offset, size);
    ++records;
  }
  void named(const Node& node, const Db& db) {
    if (free_list_) throw Fault{"the list of free pages contains a database"};
    found.emplace_back(std::string(reinterpret_cast<const char*>(node.key), node.key_size), db);
  }
  void record(const Node& node, uint64_t offset, uint32_t size) {
    inside(offset, size);
    ++records;
    if (free_list_) free_pages += claim_free(file_, owners_, node, offset, size);
  }
  void big(const Node& node, uint64_t first, uint64_t pages) {
    if (first < kMetaPages || first > file_.last_page)
      throw Fault{"overflow page " + std::to_string(first) + " is outside the database"};
    uint8_t header[24];
    file_.read(first * file_.layout.page_size, header, file_.layout.header());
    const Layout& layout = file_.layout;
    const std::string page = "overflow page " + std::to_string(first);
    if (layout.number(header) != first) throw Fault{page + " holds another page's number"};
    if (layout.flags(header) != kOverflow) throw Fault{page + " is not an overflow page"};
    if (layout.txn(header) > file_.txn) throw Fault{page + " is newer than the database"};
    // may be more than needed: a record made smaller in the transaction that wrote it
    const uint64_t run = layout.run(header);
    if (run < pages) throw Fault{page + " starts a run that is too short for its record"};
    if (layout.version != 1 && load<uint64_t>(node.data + 16) != run)
      throw Fault{page + " and its record have different lengths"};
    owners_.claim_run(first, run, "overflow");
    overflow_ += run;
  }
  void faulty(uint64_t number, const Fault& fault) {
    report_.fault(where_ + ", page " + std::to_string(number), fault.what);
  }

 private:
  bool fits(uint64_t size) const {
    return size && size <= file_.layout.page_size - file_.layout.header();
  }

  void inside(uint64_t offset, uint64_t size) const {
    if (offset + size > file_.size)
      throw Fault{"a record at byte " + std::to_string(offset) + " ends beyond the file's end"};
  }

  void count(const char* what, uint64_t seen, uint64_t told) {
    if (seen != told)
      report_.fault(where_, "it has " + std::to_string(seen) + " " + what +
                                " where its header says " + std::to_string(told));
  }

  const File& file_;
  Owners& owners_;
  Report& report_;
  std::string where_;
  const Db db_;
  bool free_list_;
  uint64_t overflow_ = 0;
  uint64_t branches_before_ = 0, leaves_before_ = 0;
  Database<Checker> database_;
};

std::string printable(const std::string& name) {
  std::string shown = name.c_str();  // LMDB 1.0 stores a zero at the end
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  return shown;
}

void verify(const File& file, const Db& free_db, const Db& main, Tell tell, Counts& counts,
            Report& report) {
  Owners owners(file.last_page);
  std::vector<std::pair<std::string, Db>> left{{"", main}};
  for (size_t i = 0; i < left.size(); ++i) {
    const std::string where = i ? "database '" + printable(left[i].first) + "'" : "the main database";
    Checker checker(file, owners, tell, report, where, left[i].second,
                    /*free_list=*/false);
    checker.run();
    counts.records += checker.records;
    ++counts.databases;
    if (i && !checker.found.empty()) report.fault(where, "it contains databases, which LMDB does not write");
    if (!i) left.insert(left.end(), checker.found.begin(), checker.found.end());
  }
  counts.used = owners.claimed();
  Checker checker(file, owners, tell, report, "the list of free pages", free_db, /*free_list=*/true);
  checker.run();
  counts.free = checker.free_pages;
  counts.used = owners.claimed() - counts.free;
  // free pages at the end need not be there
  if (!report.faults && file.size / file.layout.page_size <= file.last_page &&
      owners.claimed() < file.last_page - 1)
    report.fault("the file", "it is shorter than its header says");
  try {
    owners.settle();
  } catch (const Fault& fault) {
    report.fault("the file", fault.what);
  }
}

}  // namespace
}  // namespace dltune

using namespace dltune;

DLTUNE_MIRRORED(Counts, Counts)

// The faults, one a line, are told in `why`. 0: done. Else as dltune_lmdb_index.
extern "C" __attribute__((visibility("default"))) int dltune_lmdb_verify(
    const File* file, const Db* free_db, const Db* main, Tell tell, Counts* counts, char* why,
    int why_size) {
  Report report;
  const int code = guarded(why, why_size, [&] {
    verify(*file, *free_db, *main, tell, *counts, report);
  });
  if (code) return code;
  counts->faults = report.faults;
  std::snprintf(why, why_size, "%s", report.text.c_str());
  return 0;
}
