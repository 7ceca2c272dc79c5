"""Ranks without TensorFlow: a process that has a library of Horovod's name, whose background thread
runs a loop of Horovod's name. They start in a moment and do what a test wants."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = r"""
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <thread>
#include <time.h>

static std::atomic<int> tid{0};
static std::atomic<int> helper{0};
static std::atomic<int> writer{0};
static std::atomic<int> wanted{0};

static long long cpu_ms() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1000LL + used.tv_nsec / 1000000;
}

namespace horovod { namespace common { namespace {
// `spin` ms of work, then what is left of a cycle of `cycle` ms asleep
__attribute__((noinline)) void BackgroundThreadLoop(int cycle, int spin) {
  tid = syscall(SYS_gettid);
  // the first cycle has no sleep: what never rests does not rest then either
  auto last = std::chrono::steady_clock::now() - std::chrono::milliseconds(cycle);
  while (tid) {
    auto left = last + std::chrono::milliseconds(cycle) - std::chrono::steady_clock::now();
    if (left.count() > 0) std::this_thread::sleep_for(left);
    if (wanted) {
      const long long end = cpu_ms() + wanted + 1;
      while (cpu_ms() < end) {}
      wanted = 0;
    }
    last = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - last < std::chrono::milliseconds(spin)) {}
  }
}
// as gloo's: a thread of the library that is not the background one
__attribute__((noinline)) void Loop() {
  helper = syscall(SYS_gettid);
  while (helper) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}
}
// asks for records without end
struct TimelineWriter { __attribute__((noinline)) void WriterLoop(); };
static volatile bool writing = true;
void TimelineWriter::WriterLoop() {
  writer = syscall(SYS_gettid);
  while (writing) {}
}
}}

extern "C" int write_timeline() {
  static horovod::common::TimelineWriter timeline;
  std::thread(&horovod::common::TimelineWriter::WriterLoop, &timeline).detach();
  while (!writer) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return writer;
}
extern "C" int start(int cycle, int spin) {
  std::thread(horovod::common::BackgroundThreadLoop, cycle, spin).detach();
  std::thread(horovod::common::Loop).detach();
  while (!tid || !helper) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return tid;
}
// lets the background thread use so many ms of CPU time, and comes back when it has
extern "C" void work(int ms) {
  wanted = ms;
  while (wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
extern "C" int background_thread() { return tid; }
extern "C" int helper_thread() { return helper; }
"""

# prints "ready TID HELPER", then runs the test's own lines with `lib` and `until` at hand
RANK = r"""
import ctypes, os, signal, sys, threading, time
def until(path):
    while not os.path.exists(path):
        time.sleep(0.01)
lib = ctypes.CDLL(sys.argv[1])
background = lib.start(int(sys.argv[2]), int(sys.argv[3]))
os.write(1, b"ready %d %d\n" % (background, lib.helper_thread()))  # whole, whoever else writes
"""


def build(folder: Path, version: str = "0.28.1") -> Path:
    """The library below `folder`, as pip would install it there. Takes a second or two."""
    package = folder / "site-packages"
    target = package / "horovod" / "tensorflow" / "mpi_lib.cpython-311-x86_64-linux-gnu.so"
    target.parent.mkdir(parents=True)
    (package / f"horovod-{version}.dist-info").mkdir()
    source = folder / "mpi_lib.cc"
    source.write_text(SOURCE)
    subprocess.run(
        ["g++", "-O2", "-shared", "-fPIC", "-pthread", "-o", str(target), str(source)], check=True
    )
    return target


def environment(rank: int, size: int = 2) -> dict[str, str]:
    told = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size}
    return {
        **os.environ,
        **{f"HOROVOD_{name}": str(value) for name, value in told.items()},
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CYCLE_TIME": "2",
    }


def command(library: Path, body: str, *, cycle: int = 2, spin: int = 0) -> list[str]:
    """A rank that runs `body` once its background thread is there."""
    return [sys.executable, "-c", RANK + body, str(library), str(cycle), str(spin)]


def launcher(*ranks: list[str]) -> list[str]:
    """A command that starts ranks, waits for all, and ends with the first code that is not 0."""
    body = (
        "import json, os, subprocess, sys\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "import pretended_ranks\n"
        "commands = json.loads(sys.argv[1])\n"
        "ranks = [subprocess.Popen(c, env=pretended_ranks.environment(i, len(commands)))"
        " for i, c in enumerate(commands)]\n"
        "codes = [rank.wait() for rank in ranks]\n"
        "sys.exit(next((abs(code) for code in codes if code), 0))\n"
    )
    import json

    return [sys.executable, "-c", body, json.dumps(ranks), str(Path(__file__).parent)]


class Rank:
    """A started rank; `background` and `helper` are the threads that it has told itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        assert process.stdout is not None
        ready, background, helper = process.stdout.readline().split()
        assert ready == "ready"
        self.background, self.helper = int(background), int(helper)


@contextlib.contextmanager
def started(
    library: Path, body: str = "time.sleep(600)", *, rank: int = 0, size: int = 2, **loop: int
) -> Iterator[Rank]:
    with subprocess.Popen(
        command(library, body, **loop),
        env=environment(rank, size),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Rank(process)
        finally:
            process.kill()
