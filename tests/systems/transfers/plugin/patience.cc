// What waits for a transfer that never comes goes when nothing has moved for ten seconds, also where
// many other runs go on meanwhile: `patience SECONDS` waits so long for that. Links may be slow: what
// waits behind 25 MiB is not stuck before the fourth look.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "systems/transfers/plugin/handover.h"
#include "dltune_side.h"

int main(int, char** arguments) {
  DltuneSide dltune("window\t1000\n");
  std::atomic<bool> went{false};
  int run = 0;
  const dltune::WhenOver never = [](std::function<void()>) { return true; };
  const auto handover = dltune::HandoverOf(&run, 1, "worker", never);
  handover->Arrive(1, 1, [&] { went = true; });
  const bool at_once = handover->stuck();
  std::vector<int> others(2000);
  for (int& other : others)
    dltune::HandoverOf(&other, 1, "worker", never)->Arrive(0, 1, [] {});
  dltune::Handover slow(1000);
  slow.Arrive(0, 25 << 20, [] {});
  slow.Arrive(1, 1, [] {});
  int looks = 1;
  while (!slow.stuck()) looks++;
  const bool same = dltune::HandoverOf(&run, 1, "worker", never) == handover;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(atoi(arguments[1]));
  while (!went && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // it goes before that is told
  if (went && !dltune.Heard("transfers waited", 100)) abort();
  dltune::Flush();
  fprintf(stderr, "stuck at once: %d, looks: %d, known: %d, went: %d\n", at_once, looks, same,
          went.load());
  fflush(stdout);
  _exit(0);
}
