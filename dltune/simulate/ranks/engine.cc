// What Python calls (ranks_binding.py).
#include "engine.h"

#include "../../native/mirrored.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using dltune::ranks::Job;
using dltune::ranks::Method;
using dltune::ranks::Quantiles;
using dltune::ranks::Simulation;
using dltune::ranks::Slice;
using dltune::ranks::Totals;

DLTUNE_MIRRORED(Job, Job)
DLTUNE_MIRRORED(Method, Method)
DLTUNE_MIRRORED(Quantiles, Quantiles)
DLTUNE_MIRRORED(Slice, Slice)
DLTUNE_MIRRORED(Totals, Totals)

EXPORT void* dltune_ranks_run(const Job* job, const Method* method, int steps, int warmup,
                              std::uint64_t seed, int drawn, double* ends, Totals* totals) {
  auto* simulation = new Simulation(*job, *method, steps, warmup, seed, drawn);
  simulation->run();
  std::copy(simulation->ends.begin(), simulation->ends.end(), ends);
  *totals = simulation->totals;
  return simulation;
}

EXPORT const Slice* dltune_ranks_slices(const void* simulation, std::int64_t* count) {
  const auto& slices = static_cast<const Simulation*>(simulation)->slices;
  *count = static_cast<std::int64_t>(slices.size());
  return slices.data();
}

EXPORT void dltune_ranks_delete(void* simulation) { delete static_cast<Simulation*>(simulation); }
