"""What runs inside a job, without a framework: under sanitizers, by real threads and real forks."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import native_programs
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import CORE, MEMORY, PACKAGE, THREADS
from order_lines import MACHINE, VALID, answers, asked, mutated, require_answered

from dltune.job.protocol import MOST_GRANTED, Orders, grant_line
from dltune.plan.settings.choices import NOTHING
from dltune.plan.settings.enforce import Settings
from dltune.schemas.plan import Candidate
from dltune.turns.barrier import StepBarrier

STEP = PACKAGE / "frameworks" / "pytorch" / "plugin" / "step.cc"  # needs no PyTorch


def run(name: str, sanitizer: str, *arguments: object) -> tuple[str, str]:
    return native_programs.run(CORE / f"{name}.cc", sanitizer, *arguments)


def stepped(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The messages of steps under orders."""
    told = "".join(f"{line}\n" for line in lines).encode()
    said, _ = native_programs.run(CORE / "steps.cc", MEMORY, told=told, parts=(STEP,))
    return list(map(json.loads, said.splitlines()))


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
        f"grant\t{MOST_GRANTED + 1}",
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


def test_the_release_of_a_job_that_waits_is_understood() -> None:
    sent: list[str] = []
    job = StepBarrier("as-found", Settings(NOTHING, synthetic.machine(2)), ("step",))
    job._steppers[1] = SimpleNamespace(order=sent.extend)  # type: ignore[assignment]
    job.release()
    assert sent == [grant_line(MOST_GRANTED)]
    assert answers([*MACHINE, *sent]) == [""] * (len(MACHINE) + 1)


@settings(max_examples=60, deadline=None)
@given(mutated(VALID))
def test_any_text_is_answered(lines):
    """Mutations of a valid conversation."""
    require_answered(lines)


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
    graphs: dict[int, str] = {}
    signatures: dict[str, str] = {}
    found = []
    for message in stepped(lines):
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
    messages = stepped(lines)
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
    told = stepped([*lines, "step A", "step A", "own 6", "step A"])
    messages = [one for one in told if one["type"] == "execution"]
    assert [one["events"][-1][2] for one in messages] == [8, 6]


def test_ops_of_the_backward_pass_are_told_with_those_that_they_are_of() -> None:
    """Three of them, by the numbers of autograd's nodes; all wait for the one before."""
    lines = [*MACHINE, *DISCOVER, "step A"]
    (graph,) = (one for one in stepped(lines) if one["type"] == "graph")
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
