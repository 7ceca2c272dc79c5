// The job forks while its threads send and wait at the barrier: `forks COUNT`. Each child does what a
// child of a job may do at its end; one that hangs is ended by its alarm.
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/execution.h"
#include "dltune_side.h"

int main(int, char** arguments) {
  const int count = atoi(arguments[1]);
  DltuneSide dltune(
      "core\t0\t0\ncores\nbegin\t1\nevents\t1\nbarrier\t1\ntarget\tgraph\ndefault\t1\t0\nend\n");
  auto made = std::make_unique<dltune::Graph>();
  made->signature = "graph";
  dltune::Graph* graph = dltune::AddGraph(std::move(made));
  std::atomic<bool> over{false};
  std::atomic<int64_t> sent{0}, step{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&] {
      while (!over) {
        dltune::Send([] { return std::string(R"({"type":"complaint","text":"sent"})"); });
        sent++;
      }
    });
  threads.emplace_back([&] {
    while (!over) graph->Enter(step++);
  });
  int hung = 0, failed = 0;
  for (int i = 0; i < count; i++) {
    dltune::Grant(1);
    for (const int64_t begun = sent; sent < begun + 50;) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      dltune::Send([] { return std::string(R"({"type":"complaint","text":"from a child"})"); });
      dltune::CloseAll();
      dltune::Report("exit");
      dltune::Flush();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    hung += WIFSIGNALED(status);
    failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
  }
  over = true;
  dltune::Grant(1 << 20);
  for (auto& thread : threads) thread.join();
  dltune::Flush();
  fprintf(stderr, "%d forks, %d hung, %d failed\n", count, hung, failed);
  fflush(stdout);
  _exit(0);
}
