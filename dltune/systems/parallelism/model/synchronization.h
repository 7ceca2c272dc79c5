// How the gradients of what operators learn together are added up: a ring over the devices of each
// host, then one over the hosts, for every shard of the weights on its own set of devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "flow.h"

namespace dltune::parallelism {

struct Hop {
  std::int32_t device, resource;  // device: that sends
  std::int64_t duration, bytes;
};

// The devices of a set on one host: [first, last) of the set's. `hops`: of its ring, from, to below.
struct OnHost {
  std::int32_t first, last, hops, hops_end, awaited;
};

// The devices that hold a shard, or several that the same hold. `hosts`, `hops`: from, to below, of
// the synchronisation's; the hops from `hops` on are those between hosts.
struct ShardSet {
  std::vector<std::int32_t> devices;
  double bytes;
  std::int32_t hosts, hosts_end, hops, hops_end;
  std::int64_t update;  // ns on each device, 0: left out
};

class Synchronization {
 public:
  std::vector<ShardSet> sets;
  std::vector<OnHost> hosts;
  std::vector<Hop> hops;
  // By device: the backward tasks of the group there, and [first, next device's first) of `member`:
  // set and host that wait for them.
  std::vector<std::int32_t> awaited, member_first;
  struct Member {
    std::int32_t set, host;
  };
  std::vector<Member> member;

  void clear() {
    sets.clear();
    hosts.clear();
    hops.clear();
    member.clear();
    awaited.clear();
    member_first.clear();
  }

  // `group`: the operators that learn together, divided so.
  void build(const Problem& problem, double bytes, const std::vector<const Division*>& group) {
    clear();
    awaited.assign(problem.devices, 0);
    for (const Division* one : group)
      for (int task = 0; task < one->tasks(); ++task) ++awaited[one->device(task)];
    shard(problem, bytes, group);
    for (std::size_t set = 0; set < sets.size(); ++set)
      rings(problem, static_cast<std::int32_t>(set));
    member_first.assign(problem.devices + 1, 0);
    for (const ShardSet& set : sets)
      for (int device : set.devices) ++member_first[device + 1];
    for (int d = 0; d < problem.devices; ++d) member_first[d + 1] += member_first[d];
    member.resize(member_first[problem.devices]);
    std::vector<std::int32_t> next(member_first.begin(), member_first.end() - 1);
    for (std::size_t s = 0; s < sets.size(); ++s)
      for (int h = sets[s].hosts; h < sets[s].hosts_end; ++h)
        for (int at = hosts[h].first; at < hosts[h].last; ++at)
          member[next[sets[s].devices[at]]++] = {static_cast<std::int32_t>(s), h};
  }

  // How long after all gradients on a set's devices of one host the weights there are new, if nothing
  // is waited for.
  std::int64_t rest(const ShardSet& set, const OnHost& host) const {
    return longest(host.hops, host.hops_end) + longest(set.hops, set.hops_end) + set.update;
  }
  std::int64_t longest(int first, int end) const {
    std::int64_t found = 0;
    for (int hop = first; hop < end; ++hop) found = std::max(found, hops[hop].duration);
    return found;
  }

 private:
  static bool alike(const Configuration& a, const Configuration& b) {
    return std::equal(a.degrees, a.degrees + kDimensions, b.degrees) &&
           a.replicas == b.replicas && a.start == b.start && a.stride == b.stride &&
           std::equal(a.order, a.order + kDimensions + 1, b.order);
  }

  void shard(const Problem& problem, double bytes, const std::vector<const Division*>& group) {
    int shards = 1;
    bool same = true;
    for (const Division* one : group) {
      shards = std::lcm(shards, one->parameter_degree());
      same = same && alike(one->configuration(), group.front()->configuration());
    }
    // replicas compute the same gradients: each adds up with those of its own number
    const int copies = same ? group.front()->replicas() : 1;
    const std::size_t words = (problem.devices + 63) / 64;
    std::vector<std::uint64_t> holds(static_cast<std::size_t>(copies) * shards * words, 0);
    for (std::size_t n = 0; n < group.size(); ++n) {
      const Division& one = *group[n];
      // the steps of a layer hold the same shards: the first tells all
      if (n && same && one.parameter() == group.front()->parameter()) continue;
      const int wide = shards / one.parameter_degree();
      for (int part = 0; part < one.parts(); ++part) {
        const int low = one.parameter_place(part) * wide;
        for (int k = 0; k < one.replicas(); ++k) {
          const int device = one.device(part * one.replicas() + k);
          for (int u = low; u < low + wide; ++u)
            holds[(static_cast<std::size_t>(u) * copies + (copies > 1 ? k : 0)) * words +
                  device / 64] |= std::uint64_t{1} << (device % 64);
        }
      }
    }
    // neighbours that the same devices hold are added up together
    const std::size_t all = copies * words;
    for (int u = 0; u < shards; ++u) {
      const auto now = holds.begin() + static_cast<std::ptrdiff_t>(u * all);
      if (u && std::equal(now, now + static_cast<std::ptrdiff_t>(all),
                          now - static_cast<std::ptrdiff_t>(all))) {
        for (auto set = sets.end() - copies; set != sets.end(); ++set) set->bytes += bytes / shards;
        continue;
      }
      for (int copy = 0; copy < copies; ++copy) {
        ShardSet set{{}, bytes / shards, 0, 0, 0, 0, 0};
        for (int d = 0; d < problem.devices; ++d)
          if (now[copy * words + d / 64] >> (d % 64) & 1) set.devices.push_back(d);
        sets.push_back(std::move(set));
      }
    }
  }

  void rings(const Problem& problem, std::int32_t number) {
    ShardSet& set = sets[number];
    // by host, hosts in the order of their first device
    std::vector<std::int32_t> rank(*std::max_element(problem.host, problem.host + problem.devices) + 1, -1);
    std::int32_t next = 0;
    for (int device : set.devices)
      if (rank[problem.host[device]] < 0) rank[problem.host[device]] = next++;
    std::stable_sort(set.devices.begin(), set.devices.end(), [&](int a, int b) {
      return rank[problem.host[a]] < rank[problem.host[b]];
    });
    set.hosts = static_cast<std::int32_t>(hosts.size());
    const int count = static_cast<int>(set.devices.size());
    for (int first = 0, last; first < count; first = last) {
      const int host = problem.host[set.devices[first]];
      for (last = first; last < count && problem.host[set.devices[last]] == host;) ++last;
      OnHost here{first, last, static_cast<std::int32_t>(hops.size()), 0, last - first};
      std::vector<std::int32_t> around(last - first);
      std::iota(around.begin(), around.end(), first);
      ring(problem, set, around);
      here.hops_end = static_cast<std::int32_t>(hops.size());
      hosts.push_back(here);
    }
    set.hosts_end = static_cast<std::int32_t>(hosts.size());
    std::vector<std::int32_t> firsts;
    for (int h = set.hosts; h < set.hosts_end; ++h) firsts.push_back(hosts[h].first);
    set.hops = static_cast<std::int32_t>(hops.size());
    ring(problem, set, firsts);
    set.hops_end = static_cast<std::int32_t>(hops.size());
    if (problem.update_per_byte > 0)
      set.update =
          at_least_one(static_cast<std::int64_t>(set.bytes * problem.update_per_byte));
  }

  // Reduce-scatter and all-gather: 2 (k - 1) turns, in each of which every device passes a k-th on.
  void ring(const Problem& problem, const ShardSet& set, const std::vector<std::int32_t>& around) {
    const int k = static_cast<int>(around.size());
    if (k < 2) return;
    const double times = problem.all_reduce == 0 ? 1.0 : problem.all_reduce;
    for (int n = 0; n < k; ++n) {
      const int here = set.devices[around[n]], there = set.devices[around[(n + 1) % k]];
      const std::int64_t turn = travel(problem, here, there, set.bytes / k * times);
      hops.push_back({here,
                      problem.channel[static_cast<std::size_t>(here) * problem.devices + there],
                      at_least_one(2 * (k - 1) * turn),
                      static_cast<std::int64_t>(2 * (k - 1) * (set.bytes / k))});
    }
  }
};

}  // namespace dltune::parallelism
