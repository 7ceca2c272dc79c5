// What dltune told the plugin to do: an immutable snapshot per version, swapped as a whole. An
// execution of a graph obeys one snapshot from its first op to its last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../corun.h"
#include "counters.h"
#include "workers.h"

namespace dltune {

// How one op key runs. Without a view it is left to TensorFlow's own pool.
struct OpOrder {
  View* view = nullptr;
  bool gated = false;  // the gate chooses the cores, from `work`
  Work work;
};

struct Orders {
  int64_t version = 0;
  bool events = false;      // record each op of target graphs
  bool discover = false;    // record each op of every graph
  bool serial = false;      // one op of the target graphs at a time
  bool gate = false;        // admit ops by strategies 3 and 4
  bool hyperthreads = false;
  bool turnstile = false;   // executions of target graphs wait for a grant
  CounterGroup* counters = nullptr;  // read around each op that is recorded
  double small = 0;         // ops below this serial time are not gated (seconds)
  OpOrder fallback;         // for keys without an entry
  std::unordered_map<std::string, OpOrder> ops;  // by key
  std::vector<std::string> targets;              // signatures of the steps' graphs

  const OpOrder* Find(const std::string& key) const {
    auto found = ops.find(key);
    return found != ops.end() ? &found->second : fallback.view ? &fallback : nullptr;
  }
  bool steers() const { return fallback.view || !ops.empty(); }
};

// The machine's tiles as dltune described them: tile of each core.
extern std::vector<int>& g_tiles;
// TensorFlow's own thread settings to impose on the devices; 0 leaves the job's.
extern std::atomic<int> g_intra, g_inter;
extern std::atomic<bool> g_count_bytes;

// The snapshot for the n-th execution of a graph (they alternate when several are in turn).
const Orders* OrdersFor(uint64_t execution);

// One line of dltune's language; see docs/architecture.md. Returns a complaint, or nothing.
std::string Obey(const std::string& line);

// dltune is gone. Nothing may wait for its grants any more, and a job that was told `leash` goes on
// as if dltune had never been there.
void LetGo();

}  // namespace dltune
