"""Files that a gate reads and keeps: baselines, pyperf's, histories, documents of others."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from pathlib import Path

import decided
import msgspec
import pytest

from dltune.base.errors import UsageError
from dltune.gate import commands, comparison
from dltune.gate import verdicts as history
from dltune.gate.limits import Config, Limit
from dltune.schemas import gate as doc
from dltune.schemas.plan import SCHEMA as PLAN
from dltune.schemas.plan import Plan, Prediction, Threads, Uniform

pyperf = pytest.importorskip("pyperf")


def baseline(**changed) -> doc.Baseline:
    values = {
        "schema": doc.BASELINE_SCHEMA,
        "created": "2026",
        "dltune": "0",
        "machine": decided.HERE,
        "command": ("python", "train.py"),
        "kind": "whole",
        "commit": None,
        "measured": (doc.Measured("time", "s", tuple(1.0 + i / 1000 for i in range(15))),),
    }
    return doc.Baseline(**(values | changed))


def written(path: Path, document: msgspec.Struct) -> Path:
    path.write_bytes(msgspec.json.encode(document))
    return path


def write_pyperf(path: Path, **benchmarks: list[list[float]]) -> Path:
    suite = pyperf.BenchmarkSuite(
        [
            pyperf.Benchmark(
                [pyperf.Run(v, metadata={"name": name}, collect_metadata=False) for v in runs]
            )
            for name, runs in benchmarks.items()
        ]
    )
    suite.dump(str(path), replace=True)
    return path


def test_pyperf_s_own_files_are_read(tmp_path: Path) -> None:
    path = write_pyperf(tmp_path / "x.json", parse=[[1.0, 3.0, 2.0], [4.0]], one=[[5.0, 6.0]])
    assert comparison.is_one(path)
    assert comparison.load_pyperf(path) == {"pyperf:parse": [2.0, 4.0], "pyperf:one": [5.0, 6.0]}
    packed = write_pyperf(tmp_path / "x.json.gz", parse=[[1.0], [2.0]])
    assert comparison.load_pyperf(packed) == {"pyperf:parse": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{}", "is not a pyperf file"),
        ('{"version": "1.0", "benchmarks": []}', "contains no benchmark values"),
        ('{"version": "1.0", "benchmarks": [{"runs": [{"values": [0]}]}]}', "above 0, got 0"),
        (
            '{"version": "1.0", "benchmarks": [{"runs": [{"values": [1]}], '
            '"metadata": {"unit": "byte"}}]}',
            "is in byte",
        ),
        ('{"version": "1.0", "benchmarks": [{"runs": [{"values": [NaN]}]}]}', "not a pyperf file"),
    ],
)
def test_what_is_no_pyperf_file(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=told):
        comparison.load_pyperf(path)


def test_two_pyperf_files_are_judged(tmp_path: Path) -> None:
    runs = [[1.0 + i / 500] for i in range(20)]
    slow = [[1.3 * run[0]] for run in runs]
    before = comparison.load_baseline(
        write_pyperf(tmp_path / "a.json", same=runs, slower=runs, gone=runs)
    )
    now = comparison.load_baseline(
        write_pyperf(tmp_path / "b.json", same=runs, slower=slow, new=runs)
    )
    verdicts = comparison.compare(before, now, Config()).verdicts
    assert {v.metric: v.outcome for v in verdicts} == {
        "pyperf:same": "undecided",  # the two files' own spread is wider than the limit
        "pyperf:slower": "fail",
    }
    config = Config(limits=(Limit("pyperf:s*", ratio=1.5),))
    assert {v.outcome for v in comparison.compare(before, now, config).verdicts} == {"pass"}
    other = comparison.load_baseline(write_pyperf(tmp_path / "c.json", elsewhere=runs))
    with pytest.raises(UsageError, match="no metric in common"):
        comparison.compare(before, other, Config())


def test_a_baseline_knows_its_machine_and_command(tmp_path: Path) -> None:
    before = comparison.load_baseline(written(tmp_path / "b.json", baseline()))
    assert comparison.require_machine(before, decided.HERE, other=False) is None
    elsewhere = msgspec.structs.replace(decided.HERE, name="\x1b[2Janother")
    with pytest.raises(UsageError, match="another machine") as caught:
        comparison.require_machine(before, elsewhere, other=False)
    assert "\x1b" not in str(caught.value)
    assert "another machine" in (comparison.require_machine(before, elsewhere, other=True) or "")
    comparison.require_command(before, ["python", "train.py"])
    with pytest.raises(UsageError, match=r"was recorded with another command: python train\.py"):
        comparison.require_command(before, ["python", "other.py"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"{}", "dltune.gate-baseline"),
        (msgspec.json.encode(baseline(schema="dltune.gate-baseline/2")), "version of dltune reads"),
        (msgspec.json.encode(baseline(schema="dltune.profile/1")), "is a dltune.profile file"),
        (msgspec.json.encode(baseline(measured=())), "measured must not be empty"),
        (
            msgspec.json.encode(baseline(measured=(doc.Measured("time", "s", ()),))),
            r"values must not be empty",
        ),
        (
            msgspec.json.encode(baseline(measured=(doc.Measured("time", "s", (-1.0,)),))),
            "finite and not negative, got",
        ),
        (
            msgspec.json.encode(baseline()).replace(b"1.001", b"NaN"),
            "byte [0-9]+ is NaN, which is not a number in JSON",
        ),
        (b"\x1f\x8bdamaged", "damaged gzip"),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=told):
        comparison.load_baseline(path)


def test_a_result_that_cannot_be_is_refused(tmp_path: Path) -> None:
    bad = decided.result(
        decided.verdict(low=2.0, high=1.0), decided.verdict(median=-1.0), confidence=2.0
    )
    with pytest.raises(UsageError) as caught:
        doc.load(written(tmp_path / "r.json", bad))
    for fault in (
        "confidence must be above 0 and below 1, got 2.0",
        "high must be at least 2.0 (its low), got 1.0",
        "median must be finite and not negative, got -1.0",
    ):
        assert fault in str(caught.value)
    good = decided.result(decided.verdict())
    assert doc.load(written(tmp_path / "good.json", good)) == good


def test_the_history_grows_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert history.load(path) == []
    entry = history.entry(
        decided.result(decided.verdict(), decided.verdict("time", "fail")), paired=True
    )
    threads = [threading.Thread(target=history.append, args=(path, entry)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert history.load(path) == [entry] * 20


@pytest.mark.parametrize("ratio", [0.0, -1.0])
def test_a_history_of_what_cannot_be_is_told_with_its_line(tmp_path: Path, ratio: float) -> None:
    path = tmp_path / "history.jsonl"
    good = history.entry(decided.result(decided.verdict()), paired=True)
    point = msgspec.structs.replace(good.points[0], ratios=(1.0, ratio))
    history.append(path, good)
    history.append(path, msgspec.structs.replace(good, points=(point,)))
    with pytest.raises(UsageError, match=r"(?s)line 2 .*ratios\[\d\] must be finite and above 0"):
        history.load(path)


def test_a_history_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append(path, history.entry(decided.result(decided.verdict()), paired=True))
    with open(path, "a") as file:
        file.write('{"half":')
    with pytest.raises(UsageError, match="line 2, is not a gate"):
        history.load(path)
    with pytest.raises(UsageError, match="cannot write"):
        history.append(tmp_path, history.entry(decided.result(decided.verdict()), paired=True))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left"):
        history.append(path, history.entry(decided.result(decided.verdict()), paired=True))


def test_a_disk_that_fills_leaves_no_half_of_a_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    script = (
        "import resource, signal, sys\nfrom pathlib import Path\nimport decided\n"
        "from dltune.base.errors import UsageError\nfrom dltune.gate import verdicts as history\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))\n"
        "try:\n"
        "    entry = history.entry(decided.result(decided.verdict()), paired=True)\n"
        "    history.append(Path(sys.argv[1]), entry)\n"
        "except UsageError as error:\n    print(error)\n"
    )
    path = tmp_path / "history.jsonl"
    beside = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    for lines in (0, 1):
        limit = path.stat().st_size + 20 if lines else 20
        # without -B, compiled modules would be cut off at the limit, too, for all who import them
        code = f"import sys; sys.path += {beside}\n{script}"
        done = subprocess.run(
            [sys.executable, "-B", "-c", code, path, str(limit)], capture_output=True, text=True
        )
        assert done.stdout.startswith(f"cannot write {path}: "), done.stderr
        assert len(history.load(path)) == lines
        assert path.exists() == bool(lines)
        history.append(path, history.entry(decided.result(decided.verdict()), paired=True))


def test_numbers_of_other_reports(tmp_path: Path) -> None:
    limit = Limit("io_amplification", 1.1, None, "io.json", "reads.1.amplification")
    (tmp_path / "io.json").write_text('{"reads": [{}, {"amplification": 2.5}]}')
    assert commands.value_in_document(limit, tmp_path) == 2.5
    (tmp_path / "io.json").write_bytes(gzip.compress(b'{"reads": [0, {"amplification": 3}]}'))
    assert commands.value_in_document(limit, tmp_path) == 3
    for content, told in (
        ("{}", "'reads' is missing"),
        ('{"reads": [1]}', "'1' is missing"),
        ('{"reads": [1, {"amplification": true}]}', "is not a number"),
        ('{"reads": [1, {"amplification": -1}]}', "finite and not negative, got"),
        ("[", "is not JSON"),
    ):
        (tmp_path / "io.json").write_text(content)
        with pytest.raises(UsageError, match=told):
            commands.value_in_document(limit, tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        commands.value_in_document(Limit("io_amplification", 1.1, None, "none", "x"), tmp_path)
    assert "no I/O report is configured" in (commands.why_missing(Limit("io_amplification")) or "")
    assert "no plan is configured" in (commands.why_missing(Limit("plan_step_time")) or "")


def test_the_step_that_a_plan_predicts(tmp_path: Path) -> None:
    predictions = tuple(
        Prediction(n, s, 1.0, 1.0) for n, s in (("default", 2.0), ("per-type", 1.5))
    )
    plan = Plan(
        *(PLAN, "2026", "0", "00", decided.HERE.fingerprint, "x", 2, None, ("a",)),
        {"threads": Threads("per-type", Uniform(1, 1), False, False, 0.0, (), predictions)},
    )
    written(tmp_path / "plan.json", plan)
    limit = Limit("plan_step_time", at_most=1.0, document="plan.json")
    assert commands.value_in_document(limit, tmp_path) == 1.5
    written(tmp_path / "plan.json", msgspec.structs.replace(plan, sections={}))
    with pytest.raises(UsageError, match="no threads section"):
        commands.value_in_document(limit, tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps({"schema": "dltune.profile/1"}))
    with pytest.raises(UsageError, match=r"but a dltune\.plan file is needed"):
        commands.value_in_document(limit, tmp_path)
