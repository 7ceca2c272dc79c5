// Steps of an eager job, which are known when they are over. On standard input: orders, and a line
// "step X" for each step. A, B and C are steps of other ops; a, b and c the same on other shapes; 1, 2
// and 3 the same on other shapes after their first ops; D begins like A. Each is told with whether it was heard,
// recorded and steered, how many ops were described, and what their keys were. Messages to dltune stand
// between. The job's own number of threads is 8, or as "own N" says; "threads end" with each change from
// then on.
#include "frameworks/pytorch/plugin/step.h"
#include "frameworks/pytorch/plugin/team.h"

#include <unistd.h>

#include <iostream>
#include <map>

#include "dltune_side.h"

namespace {

constexpr int kOps = 12, kLate = 9;

int g_own = 8;

bool g_keeps_threads = true;

dltune::Keyed* Described(const std::string& type, int shape) {
  static std::map<std::string, dltune::Node> kinds;
  static std::map<std::pair<std::string, int>, dltune::Keyed> known;
  dltune::Node& kind = kinds[type];
  kind.type = type;
  dltune::Keyed& op = known[{type, shape}];
  op.kind = &kind;
  op.key = dltune::FindVariant(&kind, shape, [shape] {
             return shape ? std::to_string(shape) : "";
           })->key;
  return &op;
}

}  // namespace

bool dltune::KeepsThreads() { return g_keeps_threads; }

int main() {
  alarm(120);
  DltuneSide side("");
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "threads end") {
      g_keeps_threads = false;
      continue;
    }
    if (line.rfind("own ", 0) == 0) {
      g_own = std::stoi(line.substr(4));
      continue;
    }
    if (line.rfind("step ", 0) != 0) {
      const std::string complaint = dltune::Obey(line);
      if (!complaint.empty()) std::cerr << complaint << "\n", abort();
      continue;
    }
    const char step = line[5];
    const bool early = islower(step), late = isdigit(step);
    const std::string name(1, late ? 'A' + step - '1' : toupper(step));
    const dltune::Wanted wanted = dltune::BeginStep(g_own);
    std::vector<dltune::Json> keys;
    int described = 0;
    bool placed = false;
    for (int i = 0; i < kOps && wanted.hears; i++) {
      const std::string type = (name == "D" && i < kLate ? "A" : name) + (i ? "backward" : "forward");
      dltune::Keyed* const is = Described(type, early || (late && i >= kLate));
      keys.push_back(is->key->id);
      dltune::Keyed* const op = placed ? dltune::OpAtPlace(type) : is;
      const int threads = wanted.steers && op->key ? dltune::ThreadsOf(op->key, g_own) : 0;
      const bool others = placed || dltune::ArePlaced(op);
      const auto phase = i ? dltune::Phase::kBackward : dltune::Phase::kForward;
      dltune::Ran ran{op, phase, placed, threads, dltune::NowNs(), dltune::NowNs()};
      // the first op makes three nodes of autograd's, which the three after it belong to, the last first
      ran.number = i ? 13 : 10;
      ran.next = 13;
      if (i) ran.node = 13 - i;
      dltune::Add(ran);
      described += !placed;
      placed = others;
    }
    dltune::EndStep("Optimizer.step#SGD.step");
    // after all that the step has told
    dltune::Send([name, wanted, described, keys] {
      return dltune::Object(
          {{"type", "step"},
           {"name", name},
           {"described", described},
           {"keys", dltune::List(keys)},
           {"flushes", wanted.flushes},
           {"wanted", dltune::List({wanted.hears, wanted.records, wanted.steers})}});
    });
  }
  dltune::Complain("that was all");
  if (!side.Heard("that was all", 100)) abort();
  fflush(stdout);
  _exit(0);
}
