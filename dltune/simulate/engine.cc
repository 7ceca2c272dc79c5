// C interface of the simulator, for ctypes.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "../native/mirrored.h"
#include "admission.h"
#include "engine.h"
#include "fifo.h"
#include "network.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace dltune;
using namespace dltune::sim;

struct CWork {
  double serial;
  double seconds[1 + kCandidates];  // the choice first
  std::int32_t threads[1 + kCandidates];
  std::int32_t shared[1 + kCandidates];
  std::int32_t count, admitted, detached;
  const std::int32_t* cores;
  std::int32_t placed;  // how many of `cores` there are
};

Candidate candidate(const CWork& w, int k) {
  return {w.threads[k], w.shared[k] ? Placement::shared : Placement::spread, w.seconds[k]};
}

// Without an op's number: no interference is simulated, so none may be learnt.
AdmissionOp admission(const CWork& w) {
  AdmissionOp out{{}, w.admitted != 0, w.detached != 0, {w.cores, w.cores + w.placed}};
  out.work.serial = w.serial;
  out.work.choice = candidate(w, 0);
  out.work.count = std::min(w.count, kCandidates);
  for (int k = 0; k < out.work.count; ++k) out.work.candidates[k] = candidate(w, k + 1);
  return out;
}

// Of each task, in addition: the index of its op, and how often it runs it.
struct CGraph : Graph {
  const std::int32_t* op;
  const double* runs;
};

struct CCores {
  std::int32_t count;
  const std::int32_t *tile, *hardware;
  double smt_throughput;  // 0: not stated
};

struct CCorun {
  const CWork* ops;
  std::int32_t count, inter;
  double overhead, crowding;
  std::int32_t corun, hyperthreads;
};

// Core sets come first among the resources, then links.
struct CResources {
  const std::int32_t* where;             // per task: its resource
  const double *bytes, *priority;        // per task, of those on links
  const FifoAbout* cores;
  const LinkAbout* links;
  std::int32_t core_sets, link_count;
};

// Core sets come first among the resources, then channels.
struct CCluster {
  const std::int32_t* where;           // per task: its resource
  const double *seconds, *priority;    // per task, of those on channels
  const FifoAbout* cores;
  NetworkAbout network;
  std::int32_t core_sets;
};

// Unless `held` is null: each task's cores as a bit set of `words`, and whether it ran on a second
// hardware thread.
struct CPlaces {
  std::uint64_t* held;
  std::int32_t words;
  std::uint8_t* second;
};

}  // namespace

DLTUNE_MIRRORED(Work, CWork)
DLTUNE_MIRRORED(FifoOp, FifoOp)
DLTUNE_MIRRORED(Graph, CGraph)
DLTUNE_MIRRORED(Cores, CCores)
DLTUNE_MIRRORED(Fifo, FifoAbout)
DLTUNE_MIRRORED(Corun, CCorun)
DLTUNE_MIRRORED(Link, LinkAbout)
DLTUNE_MIRRORED(Resources, CResources)
DLTUNE_MIRRORED(Network, NetworkAbout)
DLTUNE_MIRRORED(Cluster, CCluster)
DLTUNE_MIRRORED(Timeline, Timeline)
DLTUNE_MIRRORED(Places, CPlaces)

EXPORT void dltune_fifo(const CGraph* graph, const FifoAbout* about, Timeline* out) {
  Fifo policy(*about, graph->op, graph->runs);
  run(*graph, policy, out);
}

EXPORT void dltune_resources(const CGraph* graph, const CResources* about, Timeline* out) {
  std::deque<Fifo> cores;
  std::deque<Link> links;
  std::vector<Policy*> each;
  for (int i = 0; i < about->core_sets; ++i)
    each.push_back(&cores.emplace_back(about->cores[i], graph->op, graph->runs));
  for (int i = 0; i < about->link_count; ++i)
    each.push_back(&links.emplace_back(about->links[i], about->bytes, about->priority));
  Resources policy(about->where, each);
  run(*graph, policy, out);
}

EXPORT void dltune_cluster(const CGraph* graph, const CCluster* about, Timeline* out) {
  std::deque<Fifo> cores;
  std::vector<Policy*> each;
  for (int i = 0; i < about->core_sets; ++i)
    each.push_back(&cores.emplace_back(about->cores[i], graph->op, graph->runs));
  Network network(about->network, about->where, about->core_sets, about->seconds, about->priority);
  each.push_back(&network);
  std::vector<std::int32_t> where(about->where, about->where + graph->tasks);
  for (std::int32_t& one : where) one = std::min(one, about->core_sets);
  Resources policy(where.data(), each);
  run(*graph, policy, out);
}

EXPORT void dltune_corun(const CGraph* graph, const CCores* cores, const CCorun* about,
                         CPlaces* places, Timeline* out) {
  std::vector<AdmissionOp> ops(about->count);
  std::transform(about->ops, about->ops + about->count, ops.begin(), admission);
  Options options;
  options.corun = about->corun != 0;
  options.hyperthreads = about->hyperthreads != 0;
  if (cores->smt_throughput > 0) options.smt_throughput = cores->smt_throughput;
  Admitted policy(graph->op, graph->runs, ops.data(), cores->tile, cores->hardware, cores->count,
                  about->inter, about->overhead, about->crowding, options, graph->tasks);
  run(*graph, policy, out);
  for (int t = 0; t < graph->tasks && places->held; ++t) {
    std::uint64_t* held = places->held + static_cast<std::size_t>(t) * places->words;
    for (int core : policy.places(t)) held[core / 64] |= std::uint64_t{1} << (core % 64);
    places->second[t] = policy.second(t);
  }
}
