"""py-spy's stacks: read from its raw format, and from a real process."""

from __future__ import annotations

import subprocess
import sys
import time

from dltune.system.proc.process import Frame
from dltune.watch.stack_samples import Looks, Stack, parse_stacks


def test_a_stack_is_turned_innermost_first():
    line = "thread (42): MainThread;<module> (/a b/train.py:3);step (/x.py:9) 7"
    assert list(parse_stacks([line])) == [
        Stack(42, (Frame("step", "/x.py", 9), Frame("<module>", "/a b/train.py", 3)), 7)
    ]


def test_what_is_no_stack_is_left_out():
    assert (
        list(parse_stacks(["", "process 3:python;x (y:1) 2", "thread (0x1f);f (g.py:1) x"])) == []
    )


def test_threads_may_be_told_in_hexadecimal():
    (stack,) = parse_stacks(["thread (0x1F): worker;f (g.py) 1"])
    assert (stack.thread, stack.frames) == (31, (Frame("f", "g.py", 0),))


def test_a_real_process(tmp_path):
    script = tmp_path / "sleeps.py"
    script.write_text("import time\n\ndef nap():\n    time.sleep(60)\n\nnap()\n")
    with subprocess.Popen([sys.executable, str(script)]) as job:
        try:
            time.sleep(0.5)
            looks = Looks(job.pid)
            time.sleep(2.0)
            stacks = looks.end()
        finally:
            job.kill()
    if looks.why:
        assert not stacks
        assert "py-spy" in looks.why
        return
    main = [stack for stack in stacks if stack.thread == job.pid]
    assert sum(stack.looks for stack in main) >= 3
    assert ("nap", 4) in {(frame.name, frame.line) for frame in main[-1].frames}


def test_a_process_that_is_gone_is_told():
    job = subprocess.Popen([sys.executable, "-c", ""])
    job.wait()
    looks = Looks(job.pid)
    assert looks.end() == []
    assert looks.why
