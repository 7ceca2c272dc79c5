"""Two Horovod ranks: default against the best public settings and against `dltune run`, in turns.

    python scripts/bench/bench_horovod.py --controller mpi [--oversubscribed] [--rounds 12]
        [-o out.json]

Every setting's job is started once and stands still (SIGSTOP) while another has its turn; each
round gives all of them a turn, in another order. A setting's time in a round is the median of its
steps in the turn. Ratios are of default to setting, paired by round, with a 95 % interval. Of the
background thread: CPU and run-queue wait as shares of a core, and CPU for a step.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec
import psutil

from dltune.plan.plan import new_plan
from dltune.schemas.plan import Plan, Uniform
from dltune.stats import paired_ratio
from dltune.system import topology
from dltune.systems.ranks.allreduce.decide import REST, SLEEPS
from dltune.systems.ranks.allreduce.section import (
    AllreducePlan,
    Bin,
    Controller,
    Knobs,
    Order,
    RankCores,
    Sleeps,
)

TRAIN = Path(__file__).parents[1] / "examples" / "train_horovod.py"
BIN = Path(sys.executable).parent
RANKS = 2
WARM_UP = 5  # steps of every rank before the first turn
SETTLE = 2  # steps after the start of a turn that do not count
START_SECONDS = 150
LAUNCH: dict[Controller, list[str]] = {
    "gloo": ["horovodrun", "-np", "2", "--gloo"],
    "mpi": ["mpirun", "-np", "2", "--oversubscribe"],
}
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # a rank that stands still longer than this would be taken for dead
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "3600",
    "HOROVOD_STALL_CHECK_DISABLE": "1",
}
OTHER = "while True: pass"
ONE_THREAD = ["--intra", "1", "--inter", "1"]


@dataclass(frozen=True)
class Setting:
    """How one job is started. `sections`: parts of a plan for `dltune run`, () for none. `nice`:
    of the background thread, once it runs."""

    name: str
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    sections: tuple[str, ...] = ()
    nice: int = 0


def settings(controller: Controller) -> list[Setting]:
    """Default first, then public knobs from few to many, then plans."""
    one = tuple(ONE_THREAD)
    scp = ("cores", "threads")
    found = [
        Setting("default"),
        Setting("one thread", one),
        Setting("one thread, cycle 5 ms", one, environment={"HOROVOD_CYCLE_TIME": "5"}),
        Setting("one thread, affinity", one, environment={"HOROVOD_THREAD_AFFINITY": "0,1"}),
        Setting("core-partition", sections=scp),
        Setting("core-partition+ordered-bins", sections=(*scp, "orders")),
        Setting("core-partition+ordered-bins+knobs", sections=(*scp, "orders", "knobs")),
        Setting(
            "core-partition+ordered-bins+knobs, nice", sections=(*scp, "orders", "knobs"), nice=19
        ),
    ]
    if controller == "mpi":
        idle = {"OMPI_MCA_mpi_yield_when_idle": "1"}
        found += [
            Setting("one thread, yield", one, environment=idle),
            Setting("one thread, yield, unbound", one, ("--bind-to", "none"), idle),
            Setting(
                "one thread, yield, cycle 5 ms",
                one,
                environment={**idle, "HOROVOD_CYCLE_TIME": "5"},
            ),
            Setting(
                "one thread, yield, affinity",
                one,
                ("--bind-to", "none"),
                {**idle, "HOROVOD_THREAD_AFFINITY": "0,1"},
            ),
            # mpirun binds each of two ranks to a core of its own
            Setting("non-blocking, bound to a core", sections=("threads", "sleeps")),
            Setting(
                "non-blocking, unbound", (), ("--bind-to", "none"), sections=("threads", "sleeps")
            ),
            Setting("core-partition+yield", sections=(*scp, "yield")),
            Setting("core-partition+yield+ordered-bins", sections=(*scp, "yield", "orders")),
            Setting(
                "core-partition+yield+ordered-bins, nice",
                sections=(*scp, "yield", "orders"),
                nice=19,
            ),
            Setting(
                "core-partition+yield+ordered-bins+knobs",
                sections=(*scp, "yield", "orders", "knobs"),
            ),
            Setting(
                "core-partition+yield+ordered-bins+knobs, nice",
                sections=(*scp, "yield", "orders", "knobs"),
                nice=19,
            ),
            Setting(
                "core-partition+non-blocking+yield+ordered-bins",
                sections=(*scp, "sleeps", "yield", "orders"),
            ),
            Setting(
                "core-partition+non-blocking+yield+ordered-bins+knobs",
                sections=(*scp, "sleeps", "yield", "orders", "knobs"),
            ),
            Setting("core-partition+rest+ordered-bins", sections=(*scp, "rest", "orders")),
            Setting(
                "core-partition+rest+yield+ordered-bins", sections=(*scp, "rest", "yield", "orders")
            ),
            Setting(
                "core-partition+rest+non-blocking+ordered-bins",
                sections=(*scp, "rest", "sleeps", "orders"),
            ),
            Setting("non-blocking+rest, bound to a core", sections=("threads", "sleeps", "rest")),
            Setting("rest+yield, bound to a core", sections=("threads", "yield", "rest")),
            Setting("core-partition+non-blocking", sections=(*scp, "sleeps")),
            Setting(
                "core-partition+non-blocking+ordered-bins", sections=(*scp, "sleeps", "orders")
            ),
            Setting(
                "core-partition+non-blocking+ordered-bins, nice",
                sections=(*scp, "sleeps", "orders"),
                nice=19,
            ),
            Setting(
                "core-partition+non-blocking+ordered-bins+knobs",
                sections=(*scp, "sleeps", "orders", "knobs"),
            ),
        ]
    return found


def plan(controller: Controller, sections: tuple[str, ...], blocks: int, bins: int) -> Plan:
    """By hand, for train_horovod.py on this node: a part of the cores for each rank."""
    machine = topology.local()
    pause = SLEEPS[0] if "sleeps" in sections else None
    rest = REST if "rest" in sections else None
    parts = [tuple(range(len(machine.cores)))[rank::RANKS] for rank in range(RANKS)]
    section = AllreducePlan(
        report="",
        controller=controller,
        ranks=RANKS,
        local=RANKS,
        cores=tuple(RankCores(p, p, p, p) for p in parts) if "cores" in sections else None,
        threads=Uniform(1, 1 if bins == 1 else 2) if "threads" in sections else None,
        orders=(order(blocks, bins),) if "orders" in sections else None,
        sleeps=Sleeps(pause, None, rest) if pause or rest else None,
        knobs=Knobs(5e-3, 64 << 20, 1024) if "knobs" in sections else None,
        yield_when_idle="yield" in sections,
        predictions=(),
        reasons=(),
    )
    return new_plan(machine, sections={"allreduce": section})


def order(blocks: int, bins: int) -> Order:
    """The gradients of train_horovod.py, last layer first, in so many bins of equal count."""
    shapes: list[tuple[int, ...]] = []
    for block in range(blocks):
        shapes += [(3, 3, 32 if block else 3, 32), (32,), (32,), (32,)]
    shapes += [(32, 10), (10,)]
    sizes = [4 * _product(shape) for shape in shapes]
    backwards = list(reversed(range(len(shapes))))
    cuts = [round(len(shapes) * k / bins) for k in range(bins + 1)]
    groups = [tuple(backwards[a:b]) for a, b in itertools.pairwise(cuts)]
    return Order(
        tuple(shapes),
        ("float32",) * len(shapes),
        tuple(Bin(group, sum(sizes[i] for i in group)) for group in groups),
    )


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


@dataclass(frozen=True)
class Turn:
    """`step`: median seconds. `cpu`, `wait`: seconds of the background threads on a core and in
    the run queue, per rank; over `wall` seconds and `steps` steps of rank 0."""

    step: float
    steps: int
    wall: float
    cpu: float
    wait: float


class Job:
    """One setting's ranks. `begin` lets them run on, `end` stops them again."""

    def __init__(
        self,
        setting: Setting,
        controller: Controller,
        arguments: list[str],
        folder: Path,
        path: Path,
    ) -> None:
        self.setting = setting
        self.folder = folder
        folder.mkdir()
        command = [
            *LAUNCH[controller],
            *setting.launcher,
            sys.executable,
            str(TRAIN),
            *arguments,
            *setting.arguments,
            "--record",
            str(folder),
        ]
        if setting.sections:
            dltune = [sys.executable, "-m", "dltune", "run", "--plan", str(path), "--"]
            command = dltune + command
        made = {**os.environ, **ENVIRONMENT, **setting.environment}
        made["PATH"] = os.pathsep.join([str(BIN), made["PATH"]])
        with open(folder / "output", "wb") as output:
            self._process = subprocess.Popen(
                command,
                env=made,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_for_steps()
        self.end()

    def _wait_for_steps(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not all(len(self._ended(rank)) >= WARM_UP for rank in range(RANKS)):
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self.folder / "output").read_text(errors="replace")
                raise SystemExit(f"{self.setting.name}: the job did not start:\n{said[-3000:]}")
            time.sleep(0.2)
        heads = [self._lines(rank)[0].split() for rank in range(RANKS)]
        self._pids = [int(head[0]) for head in heads]
        # hvd.init() adds the background thread first
        self._threads = [min(map(int, head[1:])) for head in heads]
        if self.setting.nice:
            for thread in self._threads:
                os.setpriority(os.PRIO_PROCESS, thread, self.setting.nice)

    def begin(self) -> None:
        self._began = time.monotonic()
        self._before = self._used()
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        self._signal(signal.SIGSTOP)

    def turn(self) -> Turn | None:
        """What has happened since `begin`; None when that is too little to tell a step's time."""
        wall = time.monotonic() - self._began
        cpu, wait = (b - a for a, b in zip(self._before, self._used(), strict=True))
        ended = [when for when in self._ended(0) if when > self._began]
        times = [b - a for a, b in itertools.pairwise(ended[SETTLE:])]
        if not times:
            return None
        return Turn(median(times), len(ended), wall, cpu / RANKS, wait / RANKS)

    def close(self) -> None:
        family = psutil.Process(self._process.pid).children(recursive=True)
        for one in (*family, self._process):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                one.kill()
        self._process.wait()

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    def _used(self) -> tuple[float, float]:
        """Seconds on a core and in the run queue of all background threads."""
        used = [
            Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
            for pid, thread in zip(self._pids, self._threads, strict=True)
        ]
        return sum(int(u[0]) for u in used) * 1e-9, sum(int(u[1]) for u in used) * 1e-9

    def _lines(self, rank: int) -> list[str]:
        path = self.folder / f"rank{rank}"
        text = path.read_text() if path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def _ended(self, rank: int) -> list[float]:
        return [float(line.split()[0]) for line in self._lines(rank)[1:]]


def measure(
    chosen: list[Setting], arguments: list[str], options: argparse.Namespace
) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {setting.name: [] for setting in chosen}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        jobs = []
        for _ in range(options.beside):
            other = subprocess.Popen([sys.executable, "-c", OTHER])
            stack.callback(other.wait)
            stack.callback(other.kill)
        for number, setting in enumerate(chosen):
            path = folder / f"plan{number}.json"
            made = plan(options.controller, setting.sections, options.blocks, options.bins)
            path.write_bytes(msgspec.json.encode(made))
            job = Job(setting, options.controller, arguments, folder / str(number), path)
            stack.callback(job.close)
            jobs.append(job)
        shuffle = random.Random(0).shuffle
        for _ in range(options.rounds):
            if time.monotonic() + len(jobs) * options.turn > options.until:
                break
            shuffle(jobs)
            round_: dict[str, Turn] = {}
            for job in jobs:
                job.begin()
                time.sleep(options.turn)
                job.end()
                if turn := job.turn():
                    round_[job.setting.name] = turn
            if len(round_) < len(jobs):
                lacking = ", ".join(turns.keys() - round_.keys())
                print(f"a round is left out: no time for steps of {lacking}", file=sys.stderr)
                continue
            for name, turn in round_.items():
                turns[name].append(turn)
    return turns


def show(turns: dict[str, list[Turn]], batch: int) -> list[dict[str, object]]:
    [base, *_] = turns.values()
    rows = []
    print(f"{'setting':30} {'step ms':>8} {'img/s':>7} {'default/it':>20}  background: CPU, wait")
    for name, mine in turns.items():
        pairs = [(b.step, m.step) for b, m in zip(base, mine, strict=True)]
        ratio = paired_ratio(pairs)
        step = median([t.step for t in mine])
        cpu = median([t.cpu / t.wall for t in mine])
        wait = median([t.wait / t.wall for t in mine])
        each = median([t.cpu / t.steps for t in mine])
        print(
            f"{name:30} {step * 1e3:8.1f} {RANKS * batch / step:7.1f} "
            f"{ratio.median:6.3f} [{ratio.low:5.3f}, {ratio.high:5.3f}]  "
            f"{cpu:6.1%} {wait:6.1%} {each * 1e3:6.2f} ms a step"
        )
        rows.append(
            {
                "setting": name,
                "step": step,
                "ratio": [ratio.median, ratio.low, ratio.high, ratio.confidence],
                "background": {"cpu": cpu, "wait": wait, "cpu_of_step": each},
                "turns": [vars(t) for t in mine],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--controller", choices=["gloo", "mpi"], required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turn", type=float, default=2.5, help="seconds of each")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="no round begins that would end after so many"
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--bins", type=int, default=3)
    parser.add_argument(
        "--oversubscribed",
        action="store_true",
        help="the script asks for intra 4, inter 4 and has two busy input threads",
    )
    parser.add_argument("--beside", type=int, default=0, help="so many other programs that compute")
    parser.add_argument("--settings", help="names of these only, the first is compared with")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is started is ended then too
    options.until = time.monotonic() + options.seconds
    chosen = settings(options.controller)
    if options.settings:
        named = {setting.name: setting for setting in chosen}
        names = options.settings.split(";")
        if unknown := [name for name in names if name not in named]:
            parser.error(f"no setting {unknown[0]!r}; there are {'; '.join(named)}")
        chosen = [named[name] for name in names]
    arguments = ["--steps", "1000000", "--batch", str(options.batch)]
    arguments += ["--blocks", str(options.blocks)]
    if options.oversubscribed:
        arguments += ["--intra", "4", "--inter", "4", "--busy-input", "2"]
    rows = show(measure(chosen, arguments, options), options.batch)
    if options.output:
        options.output.write_text(json.dumps({"options": str(options), "settings": rows}, indent=1))


if __name__ == "__main__":
    main()
