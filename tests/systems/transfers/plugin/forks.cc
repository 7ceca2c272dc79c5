// The job forks while its threads hand transfers over: `forks COUNT`. Each child does what a child of
// a job may do with a run that it has inherited; one that hangs is ended by its alarm.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "systems/transfers/plugin/handover.h"

int main(int, char** arguments) {
  const int count = atoi(arguments[1]);
  std::function<void()> run_over;
  const auto handover = dltune::HandoverOf(&run_over, 1, "worker", [&](std::function<void()> call) {
    run_over = std::move(call);
    return true;
  });
  std::atomic<bool> over{false};
  std::atomic<int64_t> looks{0};
  std::thread looking([&] {
    const dltune::WhenOver never = [](std::function<void()>) { return true; };
    while (!over) {
      dltune::HandoverOf(&run_over, 1, "worker", never);
      handover->Taken(0);
      looks++;
    }
  });
  int hung = 0, failed = 0;
  for (int i = 0; i < count; i++) {
    for (const int64_t begun = looks; looks < begun + 50;) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      handover->Taken(0);
      run_over();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    hung += WIFSIGNALED(status);
    failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
  }
  over = true;
  looking.join();
  fprintf(stderr, "%d forks, %d hung, %d failed\n", count, hung, failed);
  _exit(0);
}
