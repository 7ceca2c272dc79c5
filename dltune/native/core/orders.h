// What dltune told the plugin to do: an immutable snapshot per version, swapped as a whole. An
// execution of a graph obeys one snapshot from its first op to its last.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "../corun.h"
#include "counters.h"
#include "workers.h"

namespace dltune {

struct Orders;

// How one op key, or one node, runs under the snapshot `of`. Without a view it is left to the framework's own pool.
struct OpOrder {
  const Orders* of = nullptr;
  View* view = nullptr;
  bool by_admission = false;  // the cores are chosen when it is admitted, from `work`
  Work work;
};

struct Orders {
  Orders() { fallback.of = this; }
  Orders(const Orders&) = delete;

  int64_t version = 0;
  bool events = false;      // record each op of target graphs
  bool discover = false;    // record each op of every graph
  bool serial = false;      // one op of the target graphs at a time
  bool admission = false;   // admit ops by strategies 3 and 4
  bool hyperthreads = false;
  bool barrier = false;     // executions of target graphs wait for a grant
  bool flush = false;       // denormal numbers are zero to ops of target graphs (PyTorch's)
  CounterGroup* counters = nullptr;  // read around each op that is recorded
  double small = 0;         // ops below this serial time need no admission (seconds)
  OpOrder fallback;         // for keys without an entry
  std::unordered_map<std::string, OpOrder> ops;  // by key, or by a node's identity
  bool names_nodes = false;                      // some are by identity
  std::vector<std::string> targets;              // signatures of the steps' graphs

  const OpOrder* Find(const std::string& key) const {
    auto found = ops.find(key);
    return found != ops.end() ? &found->second : &fallback;
  }
  bool steers() const { return fallback.view || !ops.empty(); }
};

// The machine's tiles as dltune described them: tile of each core.
extern std::vector<int>& g_tiles;
// The framework's own thread settings to impose on its devices; 0 leaves the job's.
extern std::atomic<int> g_intra, g_inter;
extern std::atomic<bool> g_count_bytes;

// The snapshot for the n-th execution of a graph (they alternate when several are in turn).
const Orders* OrdersFor(uint64_t execution);
// Whether there was an order for executions yet. Until then, as where only the framework's own
// threads are set, ops run as if dltune were not there.
bool Ordered();

// The key that has this number, as `Work::op`, in every snapshot.
std::string KeyOf(int number);

// One line of dltune's language; see docs/explanation/architecture.md. Returns a complaint, or
// nothing. A snapshot one of whose lines is complained of is not obeyed: the one before stands.
std::string Obey(const std::string& line);

// dltune is gone. Nothing may wait for its grants any more, and a job that was told to `detach` goes
// on as if dltune had never been there.
void LetGo();

}  // namespace dltune
