"""Public complaints rebuilt (scripts/symptoms): are they real here, and does diagnose name them?

    PYTHONPATH=. python scripts/bench/bench_symptoms.py compare [NAME...] [--turns 3] [--seconds 20]
    PYTHONPATH=. python scripts/bench/bench_symptoms.py diagnose FILE [NAME...] [--times 3]
    PYTHONPATH=. python scripts/bench/bench_symptoms.py healthy FILE [--times 5]
    PYTHONPATH=. python scripts/bench/bench_symptoms.py watched [NAME...] [--turns 12]
        [--seconds 20]
    PYTHONPATH=. python scripts/bench/bench_symptoms.py tell FILE

As root. `compare` runs each job as complained of and with the accepted fix, in turns, and prints
both speeds by the job's own clock, without its start.

`diagnose` asks `dltune diagnose` about the job as complained of, notes which cause its first
finding names, and then runs the job as complained of, and under the plan that came of it (if one
did) and with the accepted fix in turns. `healthy` asks about jobs in which nothing is to be found;
times that other work on the machine disturbed do not count. Both add a line of JSON to FILE for
each time, and leave out the runs that it already has. `tell` prints the tables of
docs/research/benchmarks/diagnose.md.

`watched` runs the job with the accepted fix, turn by turn by itself and looked at as diagnose looks
before ops are measured, and prints the speed of the one over the other.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dltune.stats import paired_ratio
from dltune.system import kernel_files
from dltune.watch.job_watch import JobWatch

sys.path.append(str(Path(__file__).parents[1]))

from symptoms import Setting, Symptom, healthy, symptoms, true_of
from symptoms.circumstances import Place, arranged, favour
from symptoms.speed import Speed, ended, in_turns, speed

ROOT = Path(__file__).parents[2]
DLTUNE = (sys.executable, "-m", "dltune")
BUDGET = 90.0  # seconds that diagnose may look
PATIENCE = 150.0  # seconds after which it has been looking for ever


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("compare", "diagnose", "watched", "healthy", "tell"):
        one = verbs.add_parser(verb)
        if verb in ("diagnose", "healthy", "tell"):
            one.add_argument("file", type=Path)
        if verb in ("compare", "diagnose", "watched"):
            one.add_argument("names", nargs="*", metavar="NAME", help="of all: none")
            one.add_argument("--turns", type=int, default=12 if verb == "watched" else 3)
            one.add_argument("--seconds", type=float, default=20.0, help="of a job's turn")
        if verb in ("diagnose", "healthy"):
            one.add_argument("--times", type=int, default=3 if verb == "diagnose" else 5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is started is ended then too
    known = symptoms()
    if unknown := [name for name in getattr(options, "names", ()) if name not in known]:
        parser.error(f"no symptom {unknown[0]!r}; there are {', '.join(known)}")
    if options.verb == "tell":
        tell(read(options.file), known)
    elif options.verb == "healthy":
        look_at_healthy(options.file, options.times)
    else:
        favour(os.getpid())  # and so what is started
        for name in options.names or known:
            if options.verb == "compare":
                compare(known[name], options.turns, options.seconds)
            elif options.verb == "watched":
                watched(known[name], options.turns, options.seconds)
            else:
                diagnose(known[name], options)


def compare(symptom: Symptom, turns: int, seconds: float) -> None:
    before: list[Speed] = []
    after: list[Speed] = []
    for _ in range(turns):
        before.append(timed(symptom.complaint, seconds))
        after.append(timed(symptom.fixed, seconds))
    rates = [statistics.median(one.rate for one in side) for side in (before, after)]
    grown = [statistics.median(one.growth for one in side) / 1e6 for side in (before, after)]
    print(
        f"{symptom.name:20} {rates[0]:9.2f} {rates[1]:9.2f} steps/s  {rates[1] / rates[0]:6.2f}x  "
        f"memory {grown[0]:+7.1f} {grown[1]:+7.1f} MB/s  "
        f"[{', '.join(f'{one.rate:.1f}' for one in before)}; "
        f"{', '.join(f'{one.rate:.1f}' for one in after)}]",
        flush=True,
    )


def watched(symptom: Symptom, pairs: int, seconds: float) -> None:
    """One job, turn by turn looked at and not: launches differ by more than looks cost."""

    def begin(pid: int) -> Callable[[], object]:
        watch = JobWatch(pid, pid, {})
        return lambda: watch.end(symptom.name)

    turns: list[tuple[float, float]] = []
    while len(turns) < pairs:
        with _started(symptom.fixed) as (place, job):
            place.cold()
            environment, left = _environment(symptom.fixed), pairs - len(turns)
            more = in_turns([*place.enter, *job], environment, seconds, left, begin)
        if not more:
            raise RuntimeError(f"{symptom.name}: no two turns of {seconds:g} s")
        turns += more
    of = paired_ratio([(with_it, alone) for alone, with_it in turns])
    print(
        f"{symptom.name:20} {statistics.median(alone for alone, _ in turns):9.2f} steps/s  "
        f"{of.median:.3f} ({of.low:.3f} to {of.high:.3f}) of {len(turns)} pairs",
        flush=True,
    )


def timed(setting: Setting, seconds: float, under: Sequence[str] = ()) -> Speed:
    """The job's speed; `under`: what comes before its command."""
    with _started(setting) as (place, job):
        place.cold()
        return speed([*place.enter, *under, *job], _environment(setting), seconds)


def diagnose(symptom: Symptom, options: argparse.Namespace) -> None:
    there = [one for one in read(options.file) if one.get("symptom") == symptom.name]
    for _ in range(options.times - len(there)):
        with tempfile.TemporaryDirectory(prefix="dltune-") as folder:
            plan = Path(folder) / "plan.json"
            load = os.getloadavg()[0]  # of others: on a busy machine they are a finding, too
            with _started(symptom.complaint) as (place, job):
                place.cold()
                answer = asked([*place.enter], plan, job, symptom.complaint)
            findings = answer.get("findings", [])
            told = {
                "symptom": symptom.name,
                "expected": symptom.cause,
                "load": load,
                "causes": [one["cause"] for one in findings],
                "first": findings[0] if findings else None,
                "error": answer.get("error"),
                "before": timed(symptom.complaint, options.seconds).rate,
            }
            told |= cured(symptom, plan if plan.exists() else None, options)
        _add(options.file, told)
        print(f"{symptom.name}: {told['causes']}, expected {symptom.cause}", flush=True)


def cured(
    symptom: Symptom, plan: Path | None, options: argparse.Namespace
) -> dict[str, float | None]:
    """Steps a second with the accepted fix and under the plan, in turns where there is one."""
    if plan is None:
        return {"fixed": timed(symptom.fixed, options.seconds).rate, "planned": None}
    sides: dict[str, tuple[Setting, Sequence[str]]] = {
        "fixed": (symptom.fixed, ()),
        "planned": (symptom.complaint, (*DLTUNE, "run", "--plan", str(plan), "--")),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(options.turns):
        for side in sorted(sides, reverse=turn % 2 == 1):
            setting, under = sides[side]
            rates[side].append(timed(setting, options.seconds, under).rate)
    return {side: statistics.median(each) for side, each in rates.items()}


def asked(
    enter: Sequence[str], plan: Path, job: Sequence[str], setting: Setting | None
) -> dict[str, Any]:
    """What diagnose says; {"error": ...} where it fails or does not end."""
    command = [*enter, *DLTUNE, "diagnose", "--json", "--budget", f"{BUDGET:.0f}s"]
    command += ["--plan", str(plan), "--", *job]
    process = subprocess.Popen(
        command,
        env=_environment(setting),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    favour(process.pid)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {PATIENCE:.0f} s"}
    finally:
        ended(process)
    try:
        answer = json.loads(out.replace(sys.executable, "python"))  # no paths are kept
    except ValueError:
        return {"error": f"exit code {process.returncode}: {err[-500:]}"}
    return answer if process.returncode == 0 else {**answer, "error": err[-500:]}


def look_at_healthy(file: Path, times: int) -> None:
    for job in healthy():
        name = " ".join(str(Path(word).name) for word in job[1:])
        there = [one for one in quiet(read(file)) if one["healthy"] == name]
        for _ in range(times - len(there)):
            with tempfile.TemporaryDirectory(prefix="dltune-") as folder:
                answer = asked((), Path(folder) / "plan.json", job, None)
            findings = answer.get("findings", [])
            causes = [one["cause"] for one in findings]
            told = {"healthy": name, "causes": causes, "findings": findings}
            _add(file, {**told, "error": answer.get("error")})
            print(f"{name}: {causes or answer.get('error') or 'nothing'}", flush=True)


def quiet(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The times that a healthy job was asked about while nothing else kept the cores busy."""
    return [one for one in lines if "healthy" in one and "neighbour" not in one["causes"]]


def tell(lines: Sequence[dict[str, Any]], known: dict[str, Symptom]) -> None:
    print("| symptom | source | first finding | before | with the plan | with the fix |")
    print("|---|---|---|---|---|---|")
    right = asked_times = 0
    for name, symptom in known.items():
        own = [one for one in lines if one.get("symptom") == name]
        if not own:
            continue
        firsts = [one["causes"][0] if one["causes"] else "none" for one in own]
        hits = sum(first == symptom.cause for first in firsts)
        right, asked_times = right + hits, asked_times + len(own)
        before, fixed = (statistics.median(one[key] for one in own) for key in ("before", "fixed"))
        planned = [one for one in own if one["planned"]]
        under = f"({symptom.by})"
        if planned:
            rate = statistics.median(one["planned"] for one in planned)
            of_fix = ", ".join(f"{one['planned'] / one['fixed']:.2f}" for one in planned)
            under = f"{rate:.1f} ({of_fix if symptom.by == 'plan' else symptom.by})"
        other = sorted({first for first in firsts if first != symptom.cause})
        said = f"{symptom.cause} {hits}/{len(own)}" + (f", {', '.join(other)}" if other else "")
        print(
            f"| {name} | [{symptom.source.removeprefix('https://')}]({symptom.source}) | {said} "
            f"| {before:.1f} steps/s | {under} | {fixed:.1f} ({fixed / before:.2f}x) |"
        )
    if asked_times:
        print(f"\nThe first finding names the cause {right} times of {asked_times}.")
    if runs := quiet(lines):
        jobs = {one["healthy"] for one in runs}
        false = [
            one for one in runs if set(one["causes"]) - set(true_of(one["healthy"].split()[0]))
        ]
        print(f"{len(jobs)} healthy jobs, {len(runs)} runs: {len(false)} with a false finding")
        for one in runs:
            if one["causes"]:
                print(
                    f"  {one['healthy']}: {', '.join(one['causes'])}{' (false)' * (one in false)}"
                )
    for one in lines:
        if one["error"]:
            print(f"  {one.get('symptom') or one['healthy']}: {one['error']}")


@contextmanager
def _started(setting: Setting) -> Iterator[tuple[Place, list[str]]]:
    """Where the job is started, and its command."""
    with arranged(setting) as place, tempfile.TemporaryDirectory(prefix="dltune-") as folder:
        script = setting.written(Path(folder))
        yield place, [*setting.launcher, setting.python, str(script), *place.arguments]


def _environment(setting: Setting | None) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    # as TensorFlow itself has it on CPUs of now: else each job has two things wrong on others
    own["TF_ENABLE_ONEDNN_OPTS"] = "1"
    return {**os.environ, **own, **(setting.environment if setting else {})}


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _add(file: Path, told: dict[str, Any]) -> None:
    described = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()
    told_of = kernel_files.cpuinfo_value()
    cpu = f"{told_of['model name']}, family {told_of['cpu family']}, model {told_of['model']}"
    with file.open("a") as lines:
        print(json.dumps({"commit": commit, "cpu": cpu, **told}), file=lines)


if __name__ == "__main__":
    main()
