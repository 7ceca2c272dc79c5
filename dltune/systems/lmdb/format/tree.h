// Walking one B+tree level by level, its leaves in key order.
//
// A level's page numbers are known before the level is read. So pages are read a window at a time,
// in file order with neighbours in one read, while the kernel already fetches the next window.

#pragma once

#include <algorithm>
#include <cstdio>
#include <new>
#include <numeric>
#include <stdexcept>

#include "source.h"

namespace dltune {

// Called now and then with leaf pages done and in all; not 0: stop.
using Tell = int (*)(uint64_t done, uint64_t all);
struct Stopped {};

// Runs `work` for a caller in C. 0: done; 1: a fault, told in `why`; 2: stopped; 3: out of memory.
template <class Work>
int guarded(char* why, int size, Work work) {
  try {
    work();
    return 0;
  } catch (const Fault& fault) {
    std::snprintf(why, size, "%s", fault.what.c_str());
    return 1;
  } catch (const Stopped&) {
    return 2;
  } catch (const std::bad_alloc&) {
    return 3;
  } catch (const std::length_error&) {
    return 3;
  }
}

class Tree {
 public:
  Tree(const File& file, Owners& owners, Tell tell)
      : file_(file), owners_(owners), tell_(tell), reader_(file.layout) {}

  // The visitor is told, in this order and for each level: `level(branch)`, then for every page
  // either `child(i, j, node)` for its children, or `leaf(i, number, page)`; `i` counts the level's
  // pages. `faulty(number, fault)` hears of a page that cannot be used; it throws, or the walk goes
  // on without that page. Throws Fault when the tree's own record is impossible.
  template <class Visitor>
  void walk(const Db& db, Visitor&& visitor) {
    if (db.root == kNoPage) {
      if (db.depth || db.entries) throw Fault{"a tree without a root has records"};
      return;
    }
    if (db.depth < 1 || db.depth > kDeepest)
      throw Fault{"a tree is " + std::to_string(db.depth) + " levels deep"};
    owners_.claim(db.root, "root");
    std::vector<uint64_t> pages{db.root}, below;
    for (int level = 0; level < db.depth - 1; ++level) {
      below.clear();
      visitor.level(true);
      each(pages, false, visitor, [&](size_t i, uint64_t, const uint8_t* page) {
        expect(page, kBranch, kBranch);
        const auto& nodes = reader_.nodes(page, file_.layout.page_size, true);
        if (nodes.empty()) throw Fault{"it is a branch without children"};
        for (size_t j = 0; j < nodes.size(); ++j) {
          owners_.claim(nodes[j].child, "child");
          visitor.child(i, j, nodes[j]);
          below.push_back(nodes[j].child);
        }
      });
      pages.swap(below);
    }
    visitor.level(false);
    each(pages, true, visitor, [&](size_t i, uint64_t number, const uint8_t* page) {
      expect(page, kLeaf, kLeaf | kLeaf2);
      visitor.leaf(i, number, page);
    });
  }

  PageReader& reader() { return reader_; }

 private:
  static constexpr size_t kWindow = 4 << 20;  // bytes

  template <class Visitor, class Visit>
  void each(const std::vector<uint64_t>& pages, bool leaves, Visitor& visitor, Visit visit) {
    const size_t window = std::max<size_t>(1, kWindow / file_.layout.page_size);
    std::vector<uint8_t> buffer(std::min(window, pages.size()) * file_.layout.page_size);
    Order now, next;
    next.arrange(pages, 0, window);
    next.hint(file_);
    for (size_t first = 0; first < pages.size(); first += window) {
      std::swap(now, next);
      next.arrange(pages, first + window, window);
      next.hint(file_);
      now.read(file_, buffer.data());
      for (size_t i = 0; i < now.slot.size(); ++i) {
        const uint8_t* page = buffer.data() + size_t{now.slot[i]} * file_.layout.page_size;
        const uint64_t number = pages[first + i];
        try {
          if (file_.layout.number(page) != number) throw Fault{"it holds another page's number"};
          if (file_.layout.txn(page) > file_.txn) throw Fault{"it is newer than the database"};
          visit(first + i, number, page);
        } catch (const Fault& fault) {
          visitor.faulty(number, fault);
        }
      }
      if (tell_ && leaves && tell_(first + now.slot.size(), pages.size())) throw Stopped{};
    }
  }

  void expect(const uint8_t* page, uint16_t least, uint16_t most) const {
    const uint16_t flags = file_.layout.flags(page);
    if ((flags & least) != least || flags & ~most)
      throw Fault{"it is not a " + std::string(least == kBranch ? "branch" : "leaf") + " page"};
  }

  // A window of pages in file order.
  struct Order {
    std::vector<uint64_t> sorted;  // page numbers
    std::vector<uint32_t> slot;    // page i of the window is the slot[i]-th in file order

    void arrange(const std::vector<uint64_t>& pages, size_t first, size_t window) {
      const size_t count = first < pages.size() ? std::min(window, pages.size() - first) : 0;
      std::vector<uint32_t> by_place(count);
      std::iota(by_place.begin(), by_place.end(), 0);
      std::sort(by_place.begin(), by_place.end(),
                [&](uint32_t a, uint32_t b) { return pages[first + a] < pages[first + b]; });
      sorted.resize(count);
      slot.resize(count);
      for (uint32_t s = 0; s < count; ++s) {
        sorted[s] = pages[first + by_place[s]];
        slot[by_place[s]] = s;
      }
    }

    template <class Run>
    void runs(Run run) const {
      for (size_t s = 0; s < sorted.size();) {
        size_t end = s + 1;
        while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
        run(s, end - s);
        s = end;
      }
    }

    void hint(const File& file) const {
      const uint64_t size = file.layout.page_size;
      runs([&](size_t s, size_t count) { file.hint(sorted[s] * size, count * size); });
    }

    void read(const File& file, uint8_t* into) const {
      const uint64_t size = file.layout.page_size;
      runs([&](size_t s, size_t count) {
        file.read(sorted[s] * size, into + s * size, count * size);
      });
    }
  };

  const File& file_;
  Owners& owners_;
  Tell tell_;
  PageReader reader_;
};

}  // namespace dltune
