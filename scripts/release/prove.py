"""Run the proofs: tests that are too long for `make test`, and gates that take hours.

    python scripts/release/prove.py [--list] [NAME...]

Runs each proof that these sources have not passed yet, or only those that are named. Saves each
result at once in docs/research/proofs.json, so an interrupted run continues where it stopped.
docs/research/proofs.md is a table of the results.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from dltune.base import documents
from dltune.system import topology

ROOT = Path(__file__).parents[2]
RESEARCH = ROOT / "docs" / "research"
KEPT, TABLE = RESEARCH / "proofs.json", RESEARCH / "proofs.md"
# between the oldest, which `make test` has in another environment, and its own
TENSORFLOWS = ("2.17.1", "2.18.1", "2.19.1", "2.20.0")
# the oldest, and the newest; `make test` has one between them
TORCHES = ("2.6.0", "2.14.1")
# an environment each
PROGRAMS = ROOT / ".venv-programs"
# deletes each of dltune's systems
SYSTEMS = "tests/test_systems.py"
# tests that need PyTorch
PYTORCH = (
    *("tests/frameworks/pytorch", "tests/end_to_end/test_pytorch.py"),
    *("tests/systems/memory/test_relief.py", "tests/systems/memory/end_to_end/test_pytorch.py"),
    "tests/systems/ranks/buckets/test_setting.py",
)
# of gates, each verdict is kept at once
LIVE = RESEARCH / "gates.jsonl"


class Shown(msgspec.Struct):
    """What a proof showed. `sources`: a digest of the code; `seconds`: how long it took."""

    passed: bool
    figures: list[str]
    seconds: float
    machine: str
    date: str
    sources: str


@dataclass
class Proof:
    """A command, run in the environment here with some variables set.

    Of pytest its results are the figures, of another command the lines that it prints.
    """

    name: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None


def proofs() -> Iterator[Proof]:
    """The shortest first."""
    for file in matrices():
        if file == SYSTEMS:
            continue  # each by itself, below
        name = f"matrix: {file.removeprefix('tests/').removesuffix('.py')}"
        yield Proof(name, pytest("-m", "proof", file))
    for version in TENSORFLOWS:
        python = ROOT / f".venv-tf{version}" / "bin" / "python"
        yield Proof(
            f"TensorFlow {version}",
            pytest("-m", "tensorflow", "-k", "other_environment or other] or older_tensorflow"),
            {"DLTUNE_TEST_OTHER_PYTHON": str(python)},
            lambda version=version, python=python: install(f"tensorflow-cpu=={version}", python),
        )
    for version in TORCHES:
        python = ROOT / f".venv-torch{version}" / "bin" / "python"
        yield Proof(
            f"PyTorch {version}",
            pytest(*PYTORCH),
            {"DLTUNE_TEST_TORCH_PYTHON": str(python)},
            lambda version=version, python=python: install(f"torch=={version} numpy", python),
        )
    yield Proof("kernels of Eigen", pytest("-m", "tensorflow"), {"TF_ENABLE_ONEDNN_OPTS": "0"})
    yield from separations()
    yield Proof(
        "programs of others in PyTorch",
        [sys.executable, "scripts/bench/bench_torch_programs.py", str(PROGRAMS)],
        {"PYTHONPATH": str(ROOT)},
        forget_programs,
    )
    live = [sys.executable, "scripts/release/gate_live.py", str(LIVE)]
    for kind in ("whole", "steps"):
        of = [*live, "--kind", kind]
        yield Proof(f"gates of {kind}, nothing beside them", [*of, "--times", "8"])
        yield Proof(f"gates of {kind} beside another process", [*of, "--times", "4", "--neighbour"])


def separations() -> Iterator[Proof]:
    """All tests in a copy of the tree without one system, and without any."""
    systems = sorted(path.parent.name for path in ROOT.glob("dltune/systems/*/extension.py"))
    for deleted in (*systems, "+".join(systems)):
        test = f"{SYSTEMS}::test_the_rest_passes_all_its_tests[{deleted}]"
        yield Proof(f"without {deleted}", pytest("-m", "proof", test))


def forget_programs() -> None:
    """What was measured of them, but not their environments."""
    for file in PROGRAMS.glob("*/*.json"):
        file.unlink()


def pytest(*arguments: str) -> list[str]:
    parallel = ["-n", "3", "--dist", "loadfile"]
    parts = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1"]  # which has properties
    return [sys.executable, "-m", "pytest", *parts, *parallel, *arguments]


def matrices() -> list[str]:
    """The files with tests that are marked as proofs."""
    command = pytest("-n", "0", "--collect-only", "-m", "proof", "tests")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return sorted({line.split("::")[0] for line in done.stdout.splitlines() if "::" in line})


def install(packages: str, python: Path) -> None:
    """An environment with these, kept for the next time."""
    if (python.parent.parent / ".installed").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    pip = [python, "-m", "pip", "--quiet", "install"]
    subprocess.run([*pip, *packages.split()], check=True)
    (python.parent.parent / ".installed").touch()


def show(proof: Proof, sources: str) -> Shown:
    proof.prepare()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        tests = "pytest" in proof.command
        done = subprocess.run(
            [*proof.command, f"--junitxml={results}"] if tests else proof.command,
            cwd=ROOT,
            env=os.environ | proof.variables,
            stdout=subprocess.PIPE,
            text=True,
        )
        figures = list(results_of(results)) if tests else done.stdout.splitlines()
    seconds = round(time.monotonic() - began, 1)
    machine = topology.local().name
    return Shown(done.returncode == 0, figures, seconds, machine, date.today().isoformat(), sources)


def results_of(junit: Path) -> Iterator[str]:
    """A line on all, one on each test that failed, and what tests recorded of themselves."""
    (suite,) = ElementTree.parse(junit).getroot().iter("testsuite")
    total, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    yield f"{total - skipped - failed} passed, {failed} failed, {skipped} skipped"
    for case in suite.iter("testcase"):
        name = f"{case.attrib['classname']}.{case.attrib['name']}"
        if case.find("failure") is not None or case.find("error") is not None:
            yield f"failed: {name}"
        for one in case.iter("property"):
            yield f"{name}: {one.attrib['name']} {one.attrib['value']}"


def digest() -> str:
    """Of the code that is proved: the package and its tests, as they are here."""
    command = ["git", "ls-files", "-z", "dltune", "tests", "scripts"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    total = hashlib.sha256()
    for name in sorted(filter(None, names.split(b"\0"))):
        path = ROOT / os.fsdecode(name)
        total.update(name + b"\0" + (path.read_bytes() if path.is_file() else b"gone"))
    return total.hexdigest()[:12]


def keep(shown: dict[str, Shown]) -> None:
    with documents.claim(KEPT, overwrite=True) as output:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(shown), indent=1) + b"\n")
    lines = [
        "# Proofs",
        "",
        "`make proof` runs tests and gates that are too long for `make test`. This page has the",
        "latest result of each proof. `scripts/release/prove.py` generates it from",
        "`docs/research/proofs.json`. A proof runs again if the code has changed since: the last",
        "column is a digest of the package, its tests and its scripts.",
        "",
        "| proof | passed | results | time | machine and date | sources |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in shown.items():
        figures = "<br>".join(line.replace("|", "\\|") for line in one.figures)
        lines.append(
            f"| {name} | {'yes' if one.passed else 'no'} | {figures} | {one.seconds:.0f} s | "
            f"{one.machine}, {one.date} | {one.sources} |"
        )
    with documents.claim(TABLE, overwrite=True) as output:
        output.write_bytes("\n".join([*lines, ""]).encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a proof, or the start of its name"
    )
    parser.add_argument(
        "--list", action="store_true", help="only list the proofs and their results"
    )
    args = parser.parse_args()
    shown = msgspec.json.decode(KEPT.read_bytes(), type=dict[str, Shown]) if KEPT.exists() else {}
    sources = digest()
    chosen = [p for p in proofs() if not args.names or p.name.startswith(tuple(args.names))]
    if not chosen:
        parser.error(f"no proof is named {' or '.join(args.names)}: see --list")
    for proof in chosen:
        last = shown.get(proof.name)
        if args.list:
            state = "not run yet" if last is None else "passed" if last.passed else "failed"
            older = " with other sources" if last and last.sources != sources else ""
            print(f"{proof.name}: {state}{older}")
        elif last is None or not last.passed or last.sources != sources:
            print(f"{proof.name} ...", flush=True)
            shown[proof.name] = show(proof, sources)
            print(*shown[proof.name].figures, sep="\n", flush=True)
            keep(shown)
    if not args.list:
        sys.exit(not all(shown[proof.name].passed for proof in chosen))


if __name__ == "__main__":
    main()
