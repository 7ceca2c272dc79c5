// Events by the time at which they are ready, and of those of one time by their names. What is pushed is
// never earlier than what was popped last, so that a radix heap does (Ahuja, Mehlhorn, Orlin and Tarjan,
// 1990): events stand together by the highest bit in which their time differs from the last one's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dltune::parallelism {

struct Event {
  std::uint64_t name;
  std::int32_t resource, index;  // index: of the piece or hop; else -1
  std::int64_t ready, end;
};

class EventQueue {
 public:
  bool empty() const { return size_ == 0; }

  void clear() {
    for (auto& bucket : buckets_) bucket.clear();
    size_ = 0;
    last_ = 0;
    sorted_ = false;
  }

  void push(std::int64_t ready, std::uint64_t name, std::int32_t resource, std::int32_t index) {
    const int at = bucket(ready);
    buckets_[at].push_back({name, resource, index, ready});
    if (at == 0) sorted_ = false;
    ++size_;
  }

  Event pop() {
    auto& now = buckets_[0];
    if (now.empty()) advance();
    if (!sorted_) {
      std::sort(now.begin(), now.end(),
                [](const Waiting& a, const Waiting& b) { return a.name > b.name; });
      sorted_ = true;
    }
    const Waiting next = now.back();
    now.pop_back();
    --size_;
    return {next.name, next.resource, next.index, next.ready, 0};
  }

 private:
  struct Waiting {
    std::uint64_t name;
    std::int32_t resource, index;
    std::int64_t ready;
  };

  int bucket(std::int64_t ready) const {
    const std::uint64_t differs = static_cast<std::uint64_t>(ready ^ last_);
    return differs ? 64 - __builtin_clzll(differs) : 0;
  }

  // The earliest events of the first bucket that has any are the next.
  void advance() {
    int at = 1;
    while (buckets_[at].empty()) ++at;
    auto& from = buckets_[at];
    last_ = from.front().ready;
    for (const Waiting& one : from) last_ = std::min(last_, one.ready);
    for (const Waiting& one : from) buckets_[bucket(one.ready)].push_back(one);
    from.clear();
    sorted_ = false;
  }

  std::vector<Waiting> buckets_[65];
  std::size_t size_ = 0;
  std::int64_t last_ = 0;
  bool sorted_ = false;
};

}  // namespace dltune::parallelism
