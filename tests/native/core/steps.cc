// Steps of an eager job, which are known when they are over. On standard input: orders, and a line
// "step NAME" for each step, whose ops are NAME's; each is told with whether it was heard, recorded and
// steered. Messages to dltune stand between.
#include "pytorch/plugin/step.h"

#include <unistd.h>

#include <iostream>
#include <map>

#include "dltune_side.h"

namespace {

dltune::Node* KindOf(const std::string& type) {
  static std::map<std::string, dltune::Node> kinds;
  dltune::Node& kind = kinds[type];
  kind.type = type;
  return &kind;
}

}  // namespace

int main() {
  alarm(120);
  DltuneSide side("");
  for (std::string line; std::getline(std::cin, line);) {
    if (line.rfind("step ", 0) != 0) {
      const std::string complaint = dltune::Obey(line);
      if (!complaint.empty()) std::cerr << complaint << "\n", abort();
      continue;
    }
    const std::string name = line.substr(5);
    const dltune::Wanted wanted = dltune::BeginStep();
    for (const char* op : {"forward", "backward"}) {
      if (!wanted.hears) break;
      dltune::Node* const kind = KindOf(name + op);
      dltune::Key* const key = dltune::FindVariant(kind, 0, [] { return ""; })->key;
      const int threads = wanted.steers ? dltune::ThreadsOf(key) : 0;
      dltune::Add({kind, key, threads, dltune::NowNs(), dltune::NowNs()});
    }
    dltune::EndStep("Optimizer.step#SGD.step");
    // after all that the step has told
    dltune::Send([name, wanted] {
      return dltune::Object(
          {{"type", "step"},
           {"name", name},
           {"wanted", dltune::List({wanted.hears, wanted.records, wanted.steers})}});
    });
  }
  dltune::Complain("that was all");
  if (!side.Heard("that was all")) abort();
  fflush(stdout);
  _exit(0);
}
