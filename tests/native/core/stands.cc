// On how many CPUs a thread may run that runs an op on one core, and then what is not steered.
#include <sched.h>

#include <cstdio>
#include <thread>

#include "core/workers.h"

namespace {

int Allowed() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

}  // namespace

int main() {
  cpu_set_t mine;
  sched_getaffinity(0, sizeof mine, &mine);
  std::vector<std::vector<int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &mine)) cores.push_back({cpu});
  dltune::TheCores().Set(cores);
  const dltune::View first(1, {0});
  std::thread([&] {
    {
      dltune::Stand stand(first);
      printf("%d ", Allowed());
    }
    printf("%d ", Allowed());
    dltune::LeaveStand();
    printf("%d", Allowed());
  }).join();
}
