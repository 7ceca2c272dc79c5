"""Step times of parallel strategies as simulated, beside those of two real ranks of JAX.

    PYTHONPATH=. python scripts/bench/bench_strategies.py measure FILE --jax PYTHON
        [--networks points] [--ranks 4 --quota 0.4]
    PYTHONPATH=. python scripts/bench/bench_strategies.py keras FILE --jax PYTHON
    PYTHONPATH=. python scripts/bench/bench_strategies.py tell FILE [--details]

`measure` (as root) trains each network of strategies_networks.py with strategies_rank.py in two
network namespaces, one core for each rank, with links of 100 and of 400 Mbit/s; or in more of them,
each with a share of a core (`--quota`). Strategies take turns within the same processes, whose
links change their rate between turns; each is in force by the file that `--emit jax` writes. What
is measured is added to FILE, a line of JSON each; a network that is all in it is left out. PYTHON
has JAX.

For calibration three random strategies of each network and the undivided one are measured first,
and are not judged: one factor on computing for each network, and for each rate the speeds of
all-gathers, all-to-alls and all-reduces. The plan is searched with them, for each rate.

`keras` runs strategies_keras.py, which knows nothing of plans, by `dltune run --plan` in both
namespaces, with the convolutional network's plans and with data parallelism in turns.

`tell` prints the tables of docs/research/benchmarks/parallelism.md.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from core_quotas import core_quotas
from namespaces import namespaces
from strategies_networks import NETWORKS

from dltune.base.documents import digest
from dltune.plan.plan import new_plan
from dltune.stats import Interval, median_interval
from dltune.system import topology
from dltune.systems.parallelism.decide import encoded
from dltune.systems.parallelism.emit import jax_file
from dltune.systems.parallelism.jax import links
from dltune.systems.parallelism.jax.links import Speeds
from dltune.systems.parallelism.jax.operator_times import Request, Times
from dltune.systems.parallelism.model.engine import Engine, Here
from dltune.systems.parallelism.model.problem import Configuration, Problem, Strategy, mesh, problem
from dltune.systems.parallelism.model.search import (
    data_parallel,
    expert,
    random_strategy,
    search,
    single,
)
from dltune.systems.parallelism.schemas.operators import Operators
from dltune.systems.parallelism.schemas.strategy import Parallelism
from dltune.systems.parallelism.schemas.topology import Kind
from dltune.systems.parallelism.times import MeasuredCosts, costs

# rates of the links, and bytes that may go faster after a pause: few, as real links let none
RATES = {"100mbit": "16kb", "400mbit": "32kb"}
TIMED = Kind("core", 1.0, 1.0, source="operators are timed")
PORT = 9911
TURNS = 6
TURN = 0.4  # seconds of steps in each, two steps at least
RANDOM, CALIBRATING = 8, 3
PERIOD = 5_000  # microseconds: a rank stands still for a part of each
PROPOSALS = 20_000
KERAS, KERAS_TURNS = ("6", "5"), 2  # steps and epochs
STEPS = 5  # whose losses are compared
QUIET = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    # memory stays where it is, in operators alone as in steps
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
}
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure")
    keras = verbs.add_parser("keras")
    telling = verbs.add_parser("tell")
    for one in (measuring, keras, telling):
        one.add_argument("file", type=Path)
        one.add_argument("--networks", default=",".join(NETWORKS))
    for one in (measuring, keras):
        one.add_argument("--jax", required=True)
    measuring.add_argument("--ranks", type=int, default=2)
    measuring.add_argument("--quota", type=float)
    telling.add_argument("--details", action="store_true")
    asked = parser.parse_args()
    names = asked.networks.split(",")
    if asked.verb == "tell":
        tell(_lines(asked.file), names, details=asked.details)
        return
    if asked.verb == "keras":
        run_keras(_lines(asked.file), asked.jax)
        return
    for name in names:
        if not any("done" in one for one in _lines(asked.file) if one["network"] == name):
            measure(name, asked.file, asked.jax, asked.ranks, asked.quota)


def space(operator: Any, devices: int) -> list[Configuration]:
    """Even divisions alone: JAX makes no others."""
    return [
        one
        for one in mesh(operator, (devices,))
        if all(d.size % n == 0 for d, n in zip(operator.dimensions, one.degrees, strict=False))
    ]


def posed(
    graph: Operators, found: MeasuredCosts, ranks: int, link: Speeds, factor: float = 1.0
) -> Problem:
    """`factor`: on all computing."""

    def scaled(*arguments: Any) -> tuple[float, float]:
        forward, backward = found(*arguments)
        return factor * forward, factor * backward

    topology = links.topology(ranks, link, TIMED)
    return problem(graph, topology, space, scaled, factor * found.update, *link.times)


@dataclass
class Calibration:
    """One network: the factor on all its computing, and rows of the strategies that calibrate."""

    graph: Operators
    found: MeasuredCosts
    ranks: int
    rows: Sequence[dict[str, Any]]
    factor: float = 1.0

    def off(self, speeds: dict[str, Speeds], factor: float) -> float:
        """The sum of squares of relative errors."""
        errors = []
        for rate, link in speeds.items():
            engine = Engine(posed(self.graph, self.found, self.ranks, link, factor))
            for one in self.rows:
                if one["rate"] == rate:
                    simulated = engine.simulate(tuple(one["choices"])) / 1e9
                    errors.append((simulated / _median(one) - 1) ** 2)
        return sum(errors)


def calibrated(speeds: dict[str, Speeds], of: Sequence[Calibration]) -> dict[str, Speeds]:
    """By rate those with which the strategies that calibrate come nearest to what they took; the
    factors of `of` are set. One figure after the other, in smaller and smaller steps."""
    for step in (0.1, 0.1, 0.05, 0.02, 0.02):
        for one in of:
            factors = [one.factor * (1 + n * step) for n in range(-4, 5)]
            one.factor = min(factors, key=functools.partial(one.off, speeds))
        for rate, kind in itertools.product(RATES, ("gather", "swap", "sum")):
            link = speeds[rate]
            tried = [
                replace(link, **{kind: getattr(link, kind) * (1 + n * step)}) for n in range(-4, 5)
            ]
            link = min(tried, key=lambda new, at=rate: sum(o.off({at: new}, o.factor) for o in of))
            speeds = {**speeds, rate: link}
    return speeds


def measure(name: str, file: Path, python: str, count: int, quota: float | None) -> None:
    graph = NETWORKS[name]()
    with (
        open(file, "a") as out,
        tempfile.TemporaryDirectory(prefix="dltune-") as temporary,
        ExitStack() as stack,
    ):
        folder = Path(temporary)
        shares: list[tuple[str, ...]] = [()] * count
        if quota is not None:
            shares = stack.enter_context(core_quotas(count, quota, PERIOD))
        alone = folder / "python"  # with the first rank's share
        alone.write_text(f'#!/bin/sh\nexec {shlex.join([*shares[0], python])} "$@"\n')
        alone.chmod(0o755)

        def keep(**line: Any) -> dict[str, Any]:
            out.write(json.dumps({"network": name, **line}) + "\n")
            out.flush()
            return line

        os.environ.update(QUIET)
        with _favoured():
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {0})
            found = costs(graph, count, space, str(alone))
            os.sched_setaffinity(0, cores)
        times = [[asdict(r), asdict(t)] for r, t in found.times.items()]
        keep(ranks=count, times=times, update=found.update)
        with _Ranks(name, folder, python, shares) as ranks:
            link = {}
            for rate in RATES:
                ranks.limit(rate)
                samples = ranks.ask({"links": True})
                link[rate] = Speeds.of(samples)
                keep(rate=rate, samples=samples)
            problem = posed(graph, found, count, link["100mbit"])
            first = {"undivided": single(problem)}
            for n in range(CALIBRATING):
                first[f"calibrating{n}"] = random_strategy(problem, 1000 + n)
            timed = [keep(**one) for one in ranks.turns(problem, first, keep)]
            calibration = Calibration(graph, found, count, timed)
            near = calibrated(link, [calibration])
            judged = {"data_parallel": data_parallel(problem)}
            judged["expert"] = expert(problem)
            for rate in RATES:
                one = posed(graph, found, count, near[rate], calibration.factor)
                starts = dict(judged, undivided=first["undivided"])
                best = search(one, starts, Here(Engine(one)), seed=0, proposals=PROPOSALS)
                judged[f"plan_{rate}"] = best.strategy
            for n in range(RANDOM):
                judged[f"random{n}"] = random_strategy(problem, n)
            for one in ranks.turns(problem, judged, keep):
                keep(**one)
            keep(done=True)


class _Ranks:
    """Processes, each in a network namespace and on one core, with its share of that."""

    def __init__(
        self, network: str, folder: Path, python: str, shares: Sequence[tuple[str, ...]]
    ) -> None:
        self._network, self._folder, self._python = network, folder, python
        self._shares = shares

    def __enter__(self) -> _Ranks:
        count, cores = len(self._shares), os.cpu_count() or 1
        self._spaces = namespaces(count, next(iter(RATES)))
        self._own = self._spaces.__enter__()
        address = f"{self._own[0].address}:{PORT}"
        program = Path(__file__).with_name("strategies_rank.py")
        self._processes = [
            subprocess.Popen(
                [
                    # the share first: a namespace shows no control groups
                    *(*share, *one.command),
                    *("taskset", "-c", str(rank % cores), self._python, str(program)),
                    *(address, str(rank), str(count), self._network, str(self._folder)),
                ],
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for rank, (one, share) in enumerate(zip(self._own, self._shares, strict=True))
        ]
        for process in self._processes:
            _favour(process.pid)
        return self

    def __exit__(self, *why: Any) -> None:
        for process in self._processes:
            if process.stdin:
                process.stdin.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._spaces.__exit__(*why)

    def limit(self, rate: str) -> None:
        for one in self._own:
            one.limit(rate, RATES[rate])

    def ask(self, asked: dict[str, Any]) -> Any:
        """The answer of the first rank."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in self._processes]
        return answers[0]

    def _answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("{"):  # gloo says a word, too
                return json.loads(line)
        raise SystemExit("a rank has ended; what it said stands above")

    def turns(
        self, problem: Problem, strategies: dict[str, Strategy], keep: Any
    ) -> Iterator[dict[str, Any]]:
        """Every strategy's seconds at every rate. Its losses, beside those of one device, are
        kept."""
        self.limit("400mbit")
        alone = self.ask({"strategy": "", "steps": STEPS, "anew": True})
        seconds: dict[tuple[str, str], list[float]] = {}
        counts: dict[tuple[str, str], int] = {}
        for name, strategy in strategies.items():
            (self._folder / f"{name}.py").write_text(jax_file(section(problem, strategy), name))
            answer = self.ask({"strategy": name, "steps": STEPS, "anew": True, "collectives": True})
            pairs = zip(answer["losses"], alone["losses"], strict=True)
            off = max(abs(one - other) for one, other in pairs)
            keep(strategy=name, losses=answer["losses"], off=off, sent=answer["collectives"])
        order = list(strategies)
        for turn in range(TURNS):
            for rate in RATES:
                self.limit(rate)
                random.Random(turn).shuffle(order)
                for name in order:
                    steps = counts.get((name, rate), 2)
                    took = self.ask({"strategy": name, "steps": steps})["seconds"]
                    counts[name, rate] = max(2, math.ceil(TURN / statistics.median(took)))
                    seconds.setdefault((name, rate), []).append(statistics.median(took))
        for (name, rate), taken in seconds.items():
            choices = list(strategies[name])
            yield {"strategy": name, "rate": rate, "choices": choices, "seconds": taken}


def run_keras(lines: Sequence[dict[str, Any]], python: str) -> None:
    """Prints seconds of a step and losses, by strategy and rate."""
    graph = NETWORKS["convolutional"]()
    unmeasured = problem(
        graph,
        links.topology(2, Speeds(0.0, 1.0, 1.0, 1.0), TIMED),
        space,
        lambda *_: (1.0, 1.0),
    )
    chosen = {
        one["strategy"]: tuple(one["choices"])
        for one in lines
        if one["network"] == "convolutional" and "choices" in one
    }
    program = [python, str(Path(__file__).with_name("strategies_keras.py")), *KERAS]
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax"}
    alone = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    expected = json.loads(alone.stdout.splitlines()[-1])["losses"]
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="dltune-") as folder, namespaces(2, "1gbit") as own:
        for _, rate in itertools.product(range(KERAS_TURNS), RATES):
            for one in own:
                one.limit(rate, RATES[rate])
            for name in ("data_parallel", f"plan_{rate}"):
                divided = section(unmeasured, chosen[name], "network/")
                divided = msgspec.structs.replace(divided, hosts=tuple(n.address for n in own))
                path = Path(folder) / "plan.json"
                plan = new_plan(topology.local(), sections={"parallelism": divided})
                path.write_bytes(msgspec.json.encode(plan))
                command = [sys.executable, "-m", "dltune", "run", "--plan", str(path), "--"]
                ranks = [
                    subprocess.Popen(
                        [*one.command, *command, "taskset", "-c", str(rank), *program],
                        env=environment,
                        stdout=subprocess.PIPE,
                        text=True,
                        start_new_session=True,
                    )
                    for rank, one in enumerate(own)
                ]
                for rank in ranks:
                    _favour(rank.pid)
                said = [rank.communicate()[0] for rank in ranks]
                told = json.loads(next(s for s in said[0].splitlines() if s.startswith("{")))
                seconds.setdefault((rate, name), []).append(statistics.median(told["seconds"]))
                pairs = zip(told["losses"], expected, strict=True)
                off = ", ".join(f"{abs(one - other):.0e}" for one, other in pairs)
                print(f"{rate} {name}: {told['seconds']} s, losses of epochs {off} off")
    for rate in RATES:
        plan, data = (
            statistics.median(seconds[rate, name]) for name in (f"plan_{rate}", "data_parallel")
        )
        print(f"{rate}: plan {plan * 1e3:.1f} ms, data parallel {data / plan:.2f} times as long")


def section(problem: Problem, strategy: Strategy, model: str = "") -> Parallelism:
    """`model`: what comes before the names of operators and weights."""
    count = len(problem.topology.devices)
    operators = [
        msgspec.structs.replace(
            one, name=model + one.name, weights=model + one.weights if one.weights else ""
        )
        for one in encoded(problem, strategy, (count,))
    ]
    engine = Engine(problem)
    seconds, totals = engine.simulate(strategy) / 1e9, engine.totals()
    return Parallelism(
        network=problem.graph.name,
        topology=problem.topology.name,
        digests=(digest(problem.graph), digest(problem.topology)),
        devices=tuple(one.name for one in problem.topology.devices),
        mesh=(count,),
        operators=tuple(operators),
        seconds=seconds,
        compute=totals.compute,
        bytes=totals.bytes,
        baselines=(),
        proposals=0,
        searched=0.0,
        measured=True,
        consumer="jax",
    )


def tell(lines: Sequence[dict[str, Any]], networks: Sequence[str], *, details: bool) -> None:
    of: dict[str, Calibration] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in networks:
        own = [one for one in lines if one["network"] == name]
        graph, about = NETWORKS[name](), next(one for one in own if "times" in one)
        times = {_request(r): Times(**t) for r, t in about["times"]}
        rows[name] = [one for one in own if "seconds" in one]
        found = MeasuredCosts(graph, times, about["update"])
        of[name] = Calibration(
            graph, found, about["ranks"], [one for one in rows[name] if _calibrates(one)]
        )
    timed = {one["rate"]: Speeds.of(one["samples"]) for one in lines if "samples" in one}
    near = calibrated(timed, [*of.values()])
    for name in networks:
        off = max(one["off"] for one in lines if one["network"] == name and "off" in one)
        print(f"{name}: computing x {of[name].factor:.2f}, losses at most {off:.1e} off")
    for rate in RATES:
        for what, one in (("timed", timed[rate]), ("calibrated", near[rate])):
            print(
                f"{rate}, {what}: {one.latency * 1e3:.2f} ms; MB/s of all-gathers "
                f"{one.gather / 1e6:.1f}, all-to-alls {one.swap / 1e6:.1f}, all-reduces "
                f"{one.sum / 1e6:.1f}"
            )
        every: list[tuple[str, float, Interval]] = []
        for name in networks:
            here = [one for one in rows[name] if one["rate"] == rate]
            own = of[name]
            simulated = posed(own.graph, own.found, own.ranks, near[rate], own.factor)
            every += _judged(name, simulated, here, details)
        _told(f"{rate} all", every)


def _judged(
    name: str, problem: Problem, here: Sequence[dict[str, Any]], details: bool
) -> list[tuple[str, float, Interval]]:
    """Of each strategy that does not calibrate, once, seconds as simulated and measured."""
    engine = Engine(problem)
    judged = []
    known = [one["choices"] for one in here if _calibrates(one)]
    for one in here:
        simulated = engine.simulate(tuple(one["choices"])) / 1e9
        real = median_interval(one["seconds"])
        if one["choices"] not in known:
            known.append(one["choices"])
            judged.append((name, simulated, real))
        if details:
            totals = engine.totals()
            print(
                f"    {name:13} {one['strategy']:14} simulated {simulated * 1e3:7.1f} measured "
                f"{real.median * 1e3:7.1f} [{real.low * 1e3:.1f}, {real.high * 1e3:.1f}] "
                f"{simulated / real.median - 1:+.1%}  computing {totals.compute * 500:.1f} ms, "
                f"{totals.bytes / 2e3:.0f} KB from each rank"
            )
    _told(f"  {name}", judged)
    measured = {one["strategy"]: _median(one) for one in here}
    rate = here[0]["rate"]
    plan = measured[f"plan_{rate}"]
    print(
        f"    plan {plan * 1e3:.1f} ms; data parallel {measured['data_parallel'] * 1e3:.1f}, "
        f"{measured['data_parallel'] / plan:.2f} times as long; expert "
        f"{measured['expert'] / plan:.2f}, undivided {measured['undivided'] / plan:.2f}"
    )
    return judged


def _told(what: str, judged: Sequence[tuple[str, float, Interval]]) -> None:
    errors = [abs(simulated / real.median - 1) for _, simulated, real in judged]
    tau, counted = kendall(judged)
    print(
        f"{what}: {len(errors)} strategies: errors {statistics.median(errors):.1%} (median), "
        f"{max(errors):.1%} (most), {sum(e <= 0.1 for e in errors)} within 10 %; "
        f"Kendall's tau {tau:.3f} over {counted} pairs"
    )


def kendall(judged: Sequence[tuple[str, float, Interval]]) -> tuple[float, int]:
    """Of pairs of one network whose measured intervals do not overlap, and how many these are."""
    agreed = counted = 0
    for (name, one, real), (same, other, beside) in itertools.combinations(judged, 2):
        if name != same:
            continue
        if real.high < beside.low or beside.high < real.low:
            counted += 1
            sign = (one - other) * (real.median - beside.median)
            agreed += (sign > 0) - (sign < 0)
    return (agreed / counted if counted else math.nan), counted


def _calibrates(one: dict[str, Any]) -> bool:
    return one["strategy"] == "undivided" or one["strategy"].startswith("calibrating")


def _request(of: dict[str, Any]) -> Request:
    inputs = tuple(map(tuple, of["inputs"]))
    return Request(of["type"], inputs, tuple(of["output"]), of["data"])


def _median(one: dict[str, Any]) -> float:
    return statistics.median(one["seconds"])


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _favour(pid: int) -> None:
    """Before what else the machine does: with others' work in its way a rank waits for a core."""
    os.setpriority(os.PRIO_PROCESS, pid, -15)
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text("-15")


@contextmanager
def _favoured() -> Iterator[None]:
    _favour(os.getpid())
    yield
    os.setpriority(os.PRIO_PROCESS, os.getpid(), 0)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text("0")


if __name__ == "__main__":
    main()
