"""What runs inside a job, without a framework: under sanitizers, by real threads and real forks."""

from __future__ import annotations

import atexit
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dltune.native
from dltune.job.orders import Orders, encoded
from dltune.native.build import compiler
from dltune.schemas.sections.threads import Candidate

HERE = Path(__file__).parent
NATIVE = Path(dltune.native.__file__).parent
MACHINE = ["core\t0\t0", "core\t1\t1", "cores"]
VALID = [
    "begin\t7",
    "events\t1",
    "discover\t0",
    "serial\t0",
    "admission\t1",
    "hyperthreads\t1",
    "barrier\t0",
    "small\t1e-05",
    "target\t00ff",
    "counter\t0\t1\t0\t0\t1",
    "default\t2\t0,1",
    "op\tMatMul\t2\t0,1",
    "corun\tConv2D\t0.5\t2:0:0.25\t1:1:0.5\t2:1:0.25",
    "end",
    "alternate\t7\t7",
    "uniform\t2\t0",
    "count\t1",
    "detach\t1",
    "grant\t3",
    "folder\t/somewhere",
    "run\t00ff\tlayer/Conv2D",
    "offload\t00ff\tlayer/Conv2D\t0\t4",
    "offloaded\t00ff\t0",
    "prefetch\t00ff\t0\t9",
]


MEMORY, THREADS = "address,undefined", "thread"
# those of handovers.cc
FAULTS = ("none", "cancelled", "failed", "partial", "repeated", "together", "receiver")
FLAGS = ["-std=c++17", "-O0", "-g1", "-pthread", "-Wall", "-Wextra", f"-I{NATIVE}"]
# what an adapter has that needs no framework, for the programs that test it
ADAPTERS = {"steps": [f"-I{NATIVE.parent}", NATIVE.parent / "pytorch" / "plugin" / "step.cc"]}


@functools.cache
def core(sanitizer: str) -> list[str | Path]:
    """The core, compiled with a sanitizer, and the command that links it to a test program."""
    folder = Path(tempfile.mkdtemp(prefix="dltune-core-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [*compiler(), *FLAGS, f"-fsanitize={sanitizer}"]
    (folder / "empty.cc").write_text("int main() { return 0; }\n")
    empty = [*command, "-o", folder / "empty", folder / "empty.cc"]
    if subprocess.run(empty, capture_output=True).returncode != 0:
        pytest.skip(f"{command[0]} has no -fsanitize={sanitizer} here")
    sources = sorted((NATIVE / "core").glob("*.cc"))
    subprocess.run([*command, "-c", *sources], cwd=folder, check=True)
    return [*command, *sorted(folder.glob("*.o"))]


@functools.cache
def program(name: str, sanitizer: str) -> Path:
    """One of the test programs."""
    linked = core(sanitizer)
    made = Path(linked[-1]).parent / name
    # what a program has in an interpreter's place is found by its name
    sources = [HERE / f"{name}.cc", *ADAPTERS.get(name, ())]
    subprocess.run([*linked, "-rdynamic", "-o", made, *sources], check=True)
    return made


def run(name: str, sanitizer: str, *arguments: object, told: bytes = b"") -> tuple[str, str]:
    """What it said on standard output and standard error. It ended well, with nothing reported."""
    command = [str(program(name, sanitizer)), *map(str, arguments)]
    if sanitizer == THREADS and (setarch := shutil.which("setarch")):
        # its shadow memory has no room for what newer kernels' randomisation spreads about
        command = [setarch, "-R", *command]
    done = subprocess.run(command, input=told, capture_output=True, timeout=550)
    said, errors = done.stdout.decode("latin-1"), done.stderr.decode(errors="replace")
    assert done.returncode == 0, errors + said[-2000:]
    assert "Sanitizer" not in errors, errors
    assert "runtime error" not in errors, errors
    return said, errors


def answers(lines: Sequence[str]) -> list[str]:
    said, _ = run("obey", MEMORY, told=encoded(lines))
    return said.split("\n")[: len(lines)]


def asked(key: str) -> str:
    return "?" + key.encode("latin-1").hex()


def test_numbers_have_a_point_whatever_the_jobs_locale(tmp_path: Path) -> None:
    if not (localedef := shutil.which("localedef")):
        pytest.skip("no localedef here to make a locale with a decimal comma")
    made = [localedef, "-c", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE"]
    if (done := subprocess.run(made, capture_output=True)).returncode:
        pytest.skip(f"localedef makes no de_DE here: {done.stderr.decode().strip()}")
    said, _ = run("locales", MEMORY, tmp_path, "de_DE")
    assert said == "0,5 0.5"


def test_a_thread_that_is_steered_no_longer_has_all_cores_again() -> None:
    cores = len(os.sched_getaffinity(0))
    said, _ = run("stands", MEMORY)
    assert said == f"1 1 {cores}"


def test_an_execution_obeys_one_snapshot_while_they_are_switched():
    """3,000 switches between executors that share steps: no race is reported, and each op ran on
    the threads that its execution's snapshot names."""
    said, _ = run("snapshots", THREADS, 3000)
    messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    names = {m["id"]: int(m["key"][2]) for m in messages if m["type"] == "key"}
    executions = [m for m in messages if m["type"] == "execution"]

    def ordered(graph: int, version: int, op: int) -> int:
        alone = graph == 1 and op == 2 and version % 5 == 0
        return 9 if alone else 1 + (version + op) % 7

    wrong = [
        (m["graph"], m["version"], names[key], threads)
        for m in executions
        for _, key, threads, *_ in m["events"]
        if threads != ordered(m["graph"], m["version"], names[key])
    ]
    assert not wrong
    assert sorted(names.values()) == [0, 1, 2, 3]
    assert sum(bool(m["events"]) for m in executions) > 1000
    outputs = Counter((m["key"], m["bytes"]) for m in messages if m["type"] == "output")
    assert outputs == {(key, 100 + k): 1 for key, k in names.items()}
    assert messages[-1]["type"] == "report"
    assert messages[-1]["admission"]["admitted"] > 0


def test_a_late_op_is_not_of_the_step_that_was_begun_anew():
    said, _ = run("late", MEMORY)
    message = json.loads(said)
    assert message["version"] == 2
    assert [threads for _, _, threads, *_ in message["events"]] == [2]
    assert message["overhead"] == 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have no such flag")
def test_denormal_numbers_since_the_look_before():
    said, _ = run("denormals", MEMORY)
    assert said == "2 of 6\n"


def test_a_child_that_is_forked_at_any_time_ends():
    """200 forks while other threads hold the locks of channel and barrier."""
    said, errors = run("forks", MEMORY, 200)
    assert "200 forks, 0 hung, 0 failed" in errors
    assert "sent" in said
    assert "from a child" not in said


@pytest.mark.parametrize("runs", [50, pytest.param(1000, marks=pytest.mark.proof)])
@pytest.mark.parametrize("sanitizer", [THREADS, MEMORY])
@pytest.mark.parametrize("fault", FAULTS)
def test_transfers_are_handed_over_in_order_and_never_kept_back(fault, sanitizer, runs):
    """Whatever strikes their runs, and nothing of these is left."""
    _, errors = run("handovers", sanitizer, fault, runs)
    assert f"{runs} runs, 0 out of order, 0 kept back, 0 left" in errors


@pytest.mark.parametrize("ends", [10, pytest.param(1000, marks=pytest.mark.proof)])
def test_a_process_ends_while_transfers_are_handed_over(ends):
    for moment in range(ends):
        run("handovers", MEMORY, "exit", moment)


def test_a_handover_is_known_until_its_run_is_over_and_not_stuck_too_soon():
    """2,000 others come meanwhile, none of them over."""
    _, errors = run("patience", MEMORY, 0)
    assert "stuck at once: 0, looks: 4, known: 1, went: 0" in errors


@pytest.mark.proof
def test_what_waits_for_ever_goes_after_ten_seconds():
    said, errors = run("patience", MEMORY, 60)
    assert "went: 1" in errors
    assert said.count("transfers waited ten seconds") == 1


@pytest.mark.parametrize("sanitizer", [THREADS, MEMORY])
def test_tensors_leave_for_a_file_and_come_back(tmp_path, sanitizer):
    """Four at a time, of four sizes; the file has room for four of each, and no name. Of those
    that wait the most urgent goes first."""
    _, errors = run("copies", sanitizer, tmp_path, 200)
    wrong, size, order = re.fullmatch(
        r"(\d+) wrong, (\d+) bytes, order ([\d ]+)\n", errors
    ).groups()
    assert wrong == "0"
    assert int(size) <= 4 * (1 + 4096 + 70001 + 300000) + 1
    assert order == "1 2 2 5 9"
    assert list(tmp_path.iterdir()) == []


def test_why_there_is_no_file_is_told(tmp_path):
    folder = tmp_path / "gone"
    done = subprocess.run(
        [program("copies", MEMORY), folder, "1"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert f"cannot make the tensor file in {folder}: No such file" in done.stderr


def test_what_was_seen_of_ops_outlives_their_snapshot():
    """x and y disturb each other; z is not x for standing in its place. Of three snapshots the
    second alone admits onto second hardware threads."""
    said, _ = run("admitted", MEMORY)
    assert json.loads(said)["avoided"] in ([["x", "y"]], [["y", "x"]])
    assert json.loads(said)["second_threads"] == 1


def test_the_lines_of_a_snapshot_are_understood():
    assert answers([*MACHINE, *VALID]) == [""] * (len(MACHINE) + len(VALID))


@pytest.mark.parametrize(
    "line",
    [
        "op\tMatMul\t4x\t0,1",
        "op\tMatMul\t\t0,1",
        "op\tMatMul\t0\t0,1",
        "op\tMatMul\t-1\t0,1",
        "op\tMatMul\t99999999999\t0,1",
        "op\tMatMul\t2\t0,4",
        "op\tMatMul\t2\t0,",
        "op\tMatMul\t2\t0 ,1",
        "op\tMatMul\t2",
        "op\tMat\\xMul\t2\t0",
        "corun\tConv2D\tnan\t2:0:0.25",
        "corun\tConv2D\t-1\t2:0:0.25",
        "corun\tConv2D\t0,5\t2:0:0.25",
        "corun\tConv2D\t0.5\t2:2:0.25",
        "corun\tConv2D\t0.5\t2:0",
        "corun\tConv2D\t0.5" + "\t1:0:1" * 5,
        "small\tinf",
        "small\t1e-5s",
        "events\tyes",
        "events",
        "counter\t0\t1\t0\t0",
        "counter\t-1\t1\t0\t0\t1",
        "begin\tlatest",
        "default\t2\t",
        "alternate\t8",
        "uniform\t2",
        "uniform\ttwo\t2",
        "grant\tall",
        "core\t0\t2",
        "cores",
        "faster",
    ],
)
def test_a_snapshot_with_a_line_that_is_not_understood_is_not_obeyed(line):
    good = ["begin\t1", "op\tMatMul\t1\t0", "end"]
    told = [*MACHINE, *good, "begin\t2", line, "op\tMatMul\t2\t0,1", "end", asked("MatMul")]
    said = answers(told)
    assert f"unknown order: {line}" in said
    assert said[-1] == "1 1"
    assert answers([*told, "begin\t3", "op\tMatMul\t2\t0,1", "end", asked("MatMul")])[-1] == "3 2"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_text_is_answered(data):
    """Mutations of a valid conversation: nothing crashes, and the answer to the last valid snapshot
    is right whatever came before."""
    pieces = st.sampled_from([*"\t,:\\-.0129e", "99999999999999999999", "nan", "begin", "end", "é"])
    lines = []
    for line in data.draw(st.lists(st.sampled_from(VALID), max_size=40)):
        at = data.draw(st.integers(0, len(line)))
        lines.append(line[:at] + data.draw(pieces) + line[at + data.draw(st.integers(0, 2)) :])
    last = ["begin\t99", "op\tMatMul\t2\t1", "end", asked("MatMul")]
    assert answers([*MACHINE, *lines, *last])[-4:] == ["", "", "", "99 2"]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=255), min_size=1), st.integers(1, 2), max_size=5
    ),
    st.text(st.characters(max_codepoint=255), min_size=1),
)
def test_keys_may_hold_any_text(ops, admitted_key):
    """An op's attributes stand in its key: a separator, for one, is a tab."""
    corun = {admitted_key: (1e-05, Candidate(2, "spread", 1e-300), ())}
    orders = Orders(1, ops={k: (n, (0,)) for k, n in ops.items()}, corun=corun)
    lines = orders.lines()
    said = answers([*MACHINE, *lines, *map(asked, ops), asked(admitted_key)])
    assert said[: len(MACHINE) + len(lines)] == [""] * (len(MACHINE) + len(lines))
    counts = [2 if key == admitted_key else n for key, n in ops.items()]
    assert said[len(MACHINE) + len(lines) :] == [f"1 {n}" for n in [*counts, 2]]


def steps(names: str, *orders: str) -> tuple[list[dict], dict[str, str]]:
    """What is told of steps of these names under orders: records of executions by the name of their
    graph, of steps by their own; and the signatures of graphs by name."""
    lines = [*MACHINE, *orders, *(f"step {name}" for name in names)]
    said, _ = run("steps", MEMORY, told="".join(f"{line}\n" for line in lines).encode())
    graphs: dict[int, str] = {}
    signatures: dict[str, str] = {}
    found = []
    for message in map(json.loads, said.splitlines()):
        if message["type"] == "graph":
            name = graphs[message["id"]] = message["nodes"][-1][1][0]
            signatures[name] = message["signature"]
            assert message["eager"]
            passes = [node[0].partition("/")[0] for node in message["nodes"]]
            assert passes == ["forward", *["backward"] * (OPS - 1)]
        elif message["type"] == "execution":
            found.append({"ran": graphs[message["graph"]], **message})
        elif message["type"] == "step":
            found.append(message)
    return found, signatures


DISCOVER = ("begin\t1", "discover\t1", "end")
OPS, FIRST = 12, 8  # of a step, and those of them that are looked at in any case


@functools.cache
def signature(name: str) -> str:
    return steps(name, *DISCOVER)[1][name]


def recorded(*names: str, threads: str = "") -> tuple[str, ...]:
    """Orders to record the steps of these names, and on how many threads the first's forward is."""
    steered = [f"op\t{names[0]}forward()\t{threads}\t0"] if threads else []
    targets = [f"target\t{signature(name)}" for name in names]
    return ("begin\t2", "events\t1", *targets, *steered, "end")


def ran(found: list[dict]) -> str:
    return "".join(one["ran"] for one in found if one["type"] == "execution")


def test_eager_steps_are_told_by_the_ops_that_they_ran() -> None:
    found, signatures = steps("AABA", *DISCOVER)
    assert ran(found) == "AABA"
    assert set(signatures) == {"A", "B"}
    assert [one["number"] for one in found if one["type"] == "execution"] == [0, 1, 0, 2]
    assert all(len(one["events"]) == OPS for one in found if one["type"] == "execution")


def test_eager_steps_that_nobody_wants_are_not_heard() -> None:
    found, signatures = steps("AAA", "begin\t1", "end")
    assert [one["wanted"] for one in found] == [[0, 0, 0]] * 3
    assert not signatures


def test_an_eager_step_is_met_without_having_been_discovered() -> None:
    """Its first run tells which it is; from the second on it is recorded and steered."""
    found, _ = steps("AAAA", *recorded("A", threads="1"))
    assert ran(found) == "AAA"
    wanted = [one["wanted"] for one in found if one["type"] == "step"]
    assert wanted == [[1, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    threads = [[event[2] for event in one["events"]] for one in found if one["type"] == "execution"]
    assert threads == [[1, *[0] * (OPS - 1)]] * 3


def test_ops_that_get_the_jobs_own_number_are_not_heard() -> None:
    """Two, until the script has three."""
    orders = [f"target\t{signature('A')}", "op\tAforward()\t2\t0,1", "default\t2\t0,1"]
    ran = ["own 2", *["step A"] * 3, "own 3", "step A"]
    lines = [*MACHINE, "begin\t2", *orders, "end", *ran]
    said, _ = run("steps", MEMORY, told="".join(f"{line}\n" for line in lines).encode())
    messages = list(map(json.loads, said.splitlines()))
    wanted = [one["wanted"] for one in messages if one["type"] == "step"]
    assert wanted == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1]]
    assert sum(one["type"] == "execution" for one in messages) == 3  # they count all the same


def test_teams_have_one_size_where_threads_end_with_each_other_one() -> None:
    """The job's own number, eight, or one thread where that is nearer."""
    ordered = [f"op\tA{kind}()\t{n}\t0,1,2" for kind, n in (("forward", 2), ("backward", 3))]
    orders = [*recorded("A")[:-1], *ordered, "end"]
    for lines, threads in (((), (2, 3)), (("threads end",), (1, 8))):
        found, _ = steps("AAA", *lines, *orders)
        executions = [one for one in found if one["type"] == "execution"]
        forward, *backward = [event[2] for event in executions[-1]["events"]]
        assert (forward, *set(backward)) == threads


def test_teams_follow_the_jobs_own_number() -> None:
    lines = [*MACHINE, *recorded("A")[:-1], "op\tAbackward()\t3\t0,1,2", "end", "threads end"]
    told = "\n".join([*lines, "step A", "step A", "own 6", "step A", ""])
    said, _ = run("steps", MEMORY, told=told.encode())
    messages = [one for one in map(json.loads, said.splitlines()) if one["type"] == "execution"]
    assert [one["events"][-1][2] for one in messages] == [8, 6]


def test_ops_of_the_backward_pass_are_told_with_those_that_they_are_of() -> None:
    """Three of them, by the numbers of autograd's nodes; all wait for the one before."""
    lines = [*MACHINE, *DISCOVER, "step A"]
    said, _ = run("steps", MEMORY, told="".join(f"{line}\n" for line in lines).encode())
    (graph,) = (one for one in map(json.loads, said.splitlines()) if one["type"] == "graph")
    waits = [node[3] for node in graph["nodes"]]
    assert waits == [[], [0, 0], [1, 0], [2, 0], *([place] for place in range(3, OPS - 1))]


def test_denormal_numbers_are_flushed_in_steps_that_are_to_be() -> None:
    found, _ = steps("AAA", "begin\t2", "flush\t1", f"target\t{signature('A')}", "end")
    # the first is not known yet
    assert [one["flushes"] for one in found if one["type"] == "step"] == [False, True, True]


def test_another_eager_step_now_and_then_costs_no_more_than_itself() -> None:
    found, _ = steps("AAABAAABAAAB", *recorded("A"))
    # the first A is not known yet, nor is what follows the first B
    assert ran(found) == "AA" + "AA" + "AAA"


def test_eager_steps_that_take_turns() -> None:
    found, _ = steps("ABABAB", *recorded("A", "B"))
    assert ran(found).endswith("ABAB")


@given(st.text("ABC", min_size=1, max_size=40))
@settings(max_examples=30)
def test_no_eager_step_is_told_as_another(names: str) -> None:
    found, _ = steps(names, *recorded("A"))
    before: list[dict] = []
    for one in found:
        if one["type"] == "step":
            assert all(execution["ran"] == one["name"] for execution in before)
            assert len(before) <= 1
            before = []
        else:
            before.append(one)
    assert set(ran(found)) <= {"A"}


def described(found: list[dict]) -> list[int]:
    """How many ops of each step were described by their inputs."""
    return [one["described"] for one in found if one["type"] == "step"]


def mistaken(found: list[dict]) -> list[int]:
    """The steps that were told with other keys than their ops had."""
    keys: list[int] = []
    wrong = []
    for one in found:
        if one["type"] == "execution":
            keys = [event[1] for event in one["events"]]
        else:
            wrong += [one["keys"] != keys] if keys else []
            keys = []
    return [at for at, is_wrong in enumerate(wrong) if is_wrong]


def test_ops_of_a_steady_step_are_known_by_their_places() -> None:
    found, _ = steps("A" * 80, *DISCOVER)
    assert not mistaken(found)
    known = described(found)
    # the second run is what others are compared with, three are alike
    assert known[:8] == [OPS] * 5 + [FIRST] * 3
    assert {n for n, ops in enumerate(known) if ops == OPS} == {0, 1, 2, 3, 4, 36, 68}


@given(st.text("AaB", min_size=1, max_size=60))
@settings(max_examples=30)
def test_shapes_that_show_in_the_first_ops_are_never_mistaken(names: str) -> None:
    found, _ = steps(names, *DISCOVER)
    assert not mistaken(found)


def test_a_step_whose_first_ops_do_not_show_its_shapes_is_trusted_less_from_then_on() -> None:
    found, _ = steps("A" * 6 + "1" * 100, *DISCOVER)
    wrong = mistaken(found)
    assert wrong == list(range(6, 36))
    known = described(found)
    assert known[36:62] == [OPS] * 25 + [FIRST]


def test_a_step_that_goes_another_way_after_its_first_ops() -> None:
    """The first time it was taken for another one, and is not told; then it is described."""
    found, _ = steps("AAAAAAAADADDD", *DISCOVER)
    assert not mistaken(found)
    assert ran(found) == "AAAAAAAA" + "ADDD"
    assert described(found)[7:11] == [FIRST, FIRST, OPS, OPS]
