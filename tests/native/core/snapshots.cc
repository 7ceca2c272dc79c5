// Executor threads run two graphs, whose steps overlap, while dltune switches from snapshot to
// snapshot: `snapshots SWITCHES`. Each snapshot names other thread counts for the same keys.
#include <atomic>
#include <thread>
#include <vector>

#include "core/admission.h"
#include "core/execution.h"
#include "dltune_side.h"

namespace {

constexpr int kKeys = 4, kExecutors = 4, kGraphs = 2;

std::string Key(int k) { return "Op" + std::to_string(k) + "(float[2])"; }

// Under version v the key k runs on 1 + (v + k) % 7 threads; every third version admits key 3, and
// every fifth has the node of key 2 in graph1 run on 9.
std::string Snapshot(int v) {
  std::string lines = "begin\t" + std::to_string(v) + "\nevents\t1\ntarget\tgraph0\ntarget\tgraph1\n";
  for (int k = 0; k < kKeys; k++) {
    const std::string threads = std::to_string(1 + (v + k) % 7);
    if (k == 3 && v % 3 == 0)
      lines += "corun\t" + Key(k) + "\t1e-06\t" + threads + ":0:1e-06\n";
    else
      lines += "op\t" + Key(k) + "\t" + threads + "\t0,1\n";
  }
  if (v % 5 == 0) lines += "op\t@graph1/node2\t9\t0,1\n";
  return lines + "admission\t1\nhyperthreads\t" + (v % 2 ? "1" : "0") + "\nend\n";
}

std::unique_ptr<dltune::Graph> MakeGraph(int g) {
  auto graph = std::make_unique<dltune::Graph>();
  graph->signature = "graph" + std::to_string(g);
  for (int k = 0; k < kKeys; k++) {
    auto node = std::make_unique<dltune::Node>();
    node->graph = graph.get();
    node->index = k;
    node->name = "node" + std::to_string(k);
    node->type = "Op" + std::to_string(k);
    graph->nodes.push_back(std::move(node));
  }
  return graph;
}

// As the device's Compute.
void Run(dltune::Node* node, int64_t step, int thread) {
  const dltune::Entered entered = node->graph->Enter(step);
  if (!entered.steers()) return;
  dltune::Key* key = dltune::FindVariant(node, 7, [] { return std::string("float[2]"); })->key;
  const dltune::OpOrder& order = dltune::OrderFor(node, key, entered.orders);
  dltune::Event event{};
  event.node = node->index;
  event.key = key->id;
  event.thread = thread;
  event.start = event.end = dltune::NowNs();
  if (order.by_admission && entered.orders->admission) {
    dltune::Admitted admitted(order);
    event.threads = admitted.view()->threads();
  } else {
    event.threads = order.view->threads();
    order.view->Schedule([] {});
    order.view->TakeUsed(event.used);
  }
  entered.Add(event);
  dltune::NoteOutputBytes(key, 100 + node->index);
  entered.Spend(1);
}

}  // namespace

int main(int, char** arguments) {
  const int switches = atoi(arguments[1]);
  DltuneSide dltune("core\t0\t0\ncore\t1\t1\ncores\n" + Snapshot(0));
  std::vector<dltune::Graph*> graphs;
  for (int g = 0; g < kGraphs; g++) graphs.push_back(dltune::AddGraph(MakeGraph(g)));
  std::atomic<bool> over{false};
  std::atomic<int64_t> next{0};
  std::vector<std::thread> executors;
  for (int thread = 0; thread < kExecutors; thread++)
    executors.emplace_back([&, thread] {
      while (!over) {
        // ops of one step are one after the other, so that the executors share a step
        const int64_t n = next++, step = n / (kKeys * kGraphs);
        dltune::Graph* graph = graphs[n % kGraphs];
        Run(graph->nodes[n / kGraphs % kKeys].get(), step, thread);
      }
    });
  for (int v = 1; v <= switches; v++) {
    dltune.Tell(Snapshot(v));
    if (v % 5 == 0)
      dltune.Tell("alternate\t" + std::to_string(v - 1) + "\t" + std::to_string(v) + "\n");
    // each switch is seen by some step
    for (const int64_t begun = next; next < begun + 16;) std::this_thread::yield();
  }
  over = true;
  for (auto& executor : executors) executor.join();
  dltune::CloseAll();
  // a loaded machine is behind, and what finds the queue full is not sent
  do dltune::Report("exit");
  while (!dltune.Heard("\"report\"", 1));
  fflush(stdout);
  _exit(0);
}
