// An op that ends when its step is long over, and was begun anew by another late one under other
// orders and in the same slot. Prints the message of the newer execution.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/execution.h"

namespace {

void Obey(const std::string& line) {
  const std::string complaint = dltune::Obey(line);
  if (!complaint.empty()) fprintf(stderr, "%s\n", complaint.c_str()), abort();
}

// A snapshot under which each op of the graph is recorded.
void Give(int version) {
  Obey("begin\t" + std::to_string(version));
  Obey("events\t1");
  Obey("target\tgraph");
  Obey("end");
}

void Add(const dltune::Entered& entered, int threads) {
  dltune::Event event{};
  event.threads = threads;
  entered.Add(event);
  entered.Spend(threads);
}

}  // namespace

int main() {
  Obey("core\t0\t0");
  Obey("cores");
  auto made = std::make_unique<dltune::Graph>();
  made->signature = "graph";
  dltune::Graph* graph = dltune::AddGraph(std::move(made));
  Give(1);
  const dltune::Entered late = graph->Enter(1);
  Give(2);
  // 16 slots are used in turn: after twice as many steps, this one has the slot that it had
  for (int64_t step = 2; step <= 32; step++) graph->Enter(step);
  const dltune::Entered anew = graph->Enter(1);
  if (anew.execution != late.execution) abort();
  Add(late, 1);
  Add(anew, 2);
  puts(anew.execution->Close(0)().c_str());
  fflush(stdout);
  _exit(0);
}
