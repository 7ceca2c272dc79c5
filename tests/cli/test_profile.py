"""What `dltune profile` shows: the tables of a profile, the progress line, the signals."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import kineto_trace
import msgspec
import pytest
from click.testing import CliRunner
from synthetic import machine, node, op, profile

from dltune.base.errors import UsageError
from dltune.base.formatting import Table, columns
from dltune.cli import cli, terminal
from dltune.cli.profile import show_profile
from dltune.cli.terminal import Line, live, show
from dltune.profile.session_state import Progress
from dltune.schemas.profile import Memory
from dltune.simulate.machine_transfer import Law


def shown(capsys, made, **changes) -> str:
    show_profile(msgspec.structs.replace(made, **changes), Path("profile.json"), 2)
    return capsys.readouterr().out


def made_for(cores: int):
    there = machine(cores)
    ops = [
        op("Mul", Law(1e-3, 0.0, 0.0), there, key="Mul(f32[8])", count=3),
        op("Conv2D", Law(0.0, 8e-3, 0.0), there, key="Conv2D(" + "x" * 200 + ")"),
        op("Add", Law(1e-6, 0.0, 0.0), there, key="Add(f32[8])"),
        op("IteratorGetNext", None, there),
    ]
    nodes = [node(o.type, i) for i, o in enumerate(ops)]
    return profile(there, ops, {"train": nodes}, span=0.01, between=0.002)


def test_a_profile(capsys):
    text = shown(capsys, made_for(2), memory=Memory(2 << 20, 46 << 20), notes=("mind this",))
    lines = text.splitlines()
    assert lines[0].startswith("step train: 12.0 ms as found (spread 0%), 4 ops")
    assert lines[2] == "tensors: 2 MiB live between steps, 46 MiB at the peak"
    rows = lines[lines.index("ops by time with one thread") + 2 :]
    assert rows[0].startswith("Conv2D(xxx")
    assert "…" in rows[0]
    assert rows[0].split()[-8:] == ["8.000", "2", "shared", "2.00x", "1:", "8", "2:", "4"]
    assert rows[1].startswith("Mul(f32[8])")
    assert rows[1].split()[1:4] == ["3", "27.3%", "1.000"]
    assert "Add(" not in text, "only the top two were asked for"
    assert "note: mind this" in text
    assert "incomplete" not in text
    assert lines[-1] == "profile written to profile.json; next: dltune plan profile.json"


def test_a_partial_profile_says_so(capsys):
    assert "this profile is incomplete: it died" in shown(capsys, made_for(2), partial="it died")


def test_ops_that_have_the_same_threads_always(capsys):
    """As what torch.compile has compiled; what takes a hundredth of the time is no row."""
    made = made_for(2)
    kernel = msgspec.structs.replace(op("graph_0_cpp_fused_add_0", None, made.machine), own=3e-3)
    text = shown(capsys, msgspec.structs.replace(made, ops=(*made.ops, kernel)))
    lines = text.splitlines()
    (row,) = lines[lines.index("ops by time as found") + 2 :][:1]
    assert row.split()[0].startswith("graph_0_cpp_fused_add_0(")
    assert row.split()[1:] == ["1", "30.0%", "3.000"]
    assert "IteratorGetNext" not in text


def test_a_profile_without_any_measured_op(capsys):
    there = machine(2)
    made = profile(there, [op("Mul", None, there)], {"train": [node("Mul", 0)]}, span=0.01)
    assert "written to" in shown(capsys, made)


def test_a_long_curve_is_thinned_out(capsys):
    lines = shown(capsys, made_for(64)).splitlines()
    row = next(line for line in lines if line.startswith("Conv"))
    counts = [int(word[:-1]) for word in row.split() if word.endswith(":")]
    assert len(counts) == 4
    assert (counts[0], counts[-1]) == (1, 64)
    assert counts == sorted(counts)


def test_columns_are_aligned(capsys):
    show(Table("title", columns("name", ">n"), [("a", "1"), ("longer", "200")]), gap=False)
    assert capsys.readouterr().out == "title\nname      n\na         1\nlonger  200\n"


class TestProgress:
    def test_a_line_per_change(self, capsys):
        line = Line(None)
        for step in range(3):
            line.tell(Progress("searching for the training step", step))
        line.tell(Progress("trying thread counts", 16, (1, "spread"), 0, 12.3))
        line.tell(Progress("trying thread counts", 20, (1, "spread"), 7, 9.0))
        line.tell(Progress("trying thread counts", 24, (2, "shared"), 7, 4.2))
        assert capsys.readouterr().err.splitlines() == [
            "dltune: searching for the training step",
            "dltune: trying thread counts, step 16, 1 thread (spread placement), about 12 s left",
            "dltune: trying thread counts, step 24, 2 threads (shared placement), 7 ops left, "
            "about 4 s left",
        ]

    def test_how_far_a_phase_has_come_is_told_after_a_while(self, capsys, monkeypatch):
        monkeypatch.setattr("dltune.cli.terminal.QUIET_SECONDS", 0.0)
        line = Line(None)
        line.tell(Progress("searching for the training step", 1))
        line.tell(Progress("searching for the training step", 2))
        assert len(capsys.readouterr().err.splitlines()) == 2

    def test_no_line_is_told_twice_however_long_it_is_true(self, capsys, monkeypatch):
        monkeypatch.setattr("dltune.cli.terminal.QUIET_SECONDS", 0.0)
        line = Line(None)
        for phase in ("waiting", "building", "building", "waiting", "building", "waiting"):
            line.tell(Progress(phase))
        assert capsys.readouterr().err.splitlines() == ["dltune: waiting", "dltune: building"]

    def test_of_a_live_view_without_a_terminal(self, capsys, monkeypatch):
        monkeypatch.setattr("dltune.cli.terminal.QUIET_SECONDS", 0.0)
        seen = iter(["starting", "starting", "3 rounds", "starting"])
        with live("tuning train.py", lambda: next(seen), list) as refresh:
            for _ in range(4):
                refresh()
        assert capsys.readouterr().err.splitlines() == [
            "dltune: tuning train.py",
            "dltune: starting",
            "dltune: 3 rounds",
        ]

    def test_of_a_live_view_little_is_told(self, capsys):
        seen = map(str, range(100))
        with live("tuning train.py", lambda: next(seen), list) as refresh:
            for _ in range(100):
                refresh()
        assert capsys.readouterr().err == "dltune: tuning train.py\n"


class TestInterrupts:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_signals_raise(self, number):
        with pytest.raises(terminal.Ended) as raised, terminal.raised():
            os.kill(os.getpid(), number)
        assert raised.value.exit_code == 128 + number
        assert str(raised.value) == number.name

    def test_handlers_are_put_back(self):
        before = signal.getsignal(signal.SIGTERM)
        with terminal.raised():
            assert signal.getsignal(signal.SIGTERM) is not before
        assert signal.getsignal(signal.SIGTERM) is before

    def test_what_is_ignored_stays_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with terminal.raised():
                os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_a_handler_gets_the_number(self):
        heard = []
        with terminal.heard(lambda number, _: heard.append(number)):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert heard == [signal.SIGTERM, signal.SIGINT]

    def test_within_a_handler_s_block_nothing_is_raised(self):
        heard = []
        with terminal.raised(), terminal.heard(lambda number, _: heard.append(number)):
            os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGHUP]

    def test_what_comes_out_is_told_and_is_the_exit_code(self, capsys):
        with pytest.raises(SystemExit) as left, terminal.reported():
            os.kill(os.getpid(), signal.SIGTERM)
        assert left.value.code == 143
        assert capsys.readouterr().err == "dltune: ended by SIGTERM\n"


def test_a_trace_of_pytorch(tmp_path: Path) -> None:
    """As it is read, shown and drawn; nothing can be planned from it."""
    trace, made = tmp_path / "trace.json", tmp_path / "p.json"
    trace.write_text(json.dumps(kineto_trace.trace(kineto_trace.steps())))
    done = CliRunner().invoke(cli, ["profile", "--from", str(trace), "-o", str(made), "--top", "3"])
    assert done.exit_code == 0, done.output
    assert "1.5 ms" in done.output
    assert "PyTorch, threads as found: intra-op" in done.output
    assert "aten::conv2d(float" in done.output
    assert f"next: dltune report {made}" in done.output
    for word in ("TensorFlow", "tf.", "Keras", "XLA"):
        assert word not in done.output
    page = tmp_path / "page.html"
    for line in (["show", str(made)], ["report", str(made), "-o", str(page)]):
        done = CliRunner().invoke(cli, line)
        assert done.exit_code == 0, (line, done.output, done.exception)
    with pytest.raises(UsageError, match="no op times by thread count"):
        CliRunner().invoke(cli, ["plan", str(made)], catch_exceptions=False)
    assert "aten::conv2d" in page.read_text()
    with pytest.raises(UsageError, match="--from reads a finished measurement"):
        CliRunner().invoke(
            cli,
            ["profile", "--from", str(trace), "--", "python", "x.py"],
            catch_exceptions=False,
        )
