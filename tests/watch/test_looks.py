"""py-spy's stacks: read from its raw format, and from a real process."""

from __future__ import annotations

import subprocess
import sys
import time

from dltune.system.proc import stat
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
    script.write_text(
        "import time\n\ndef nap():\n    time.sleep(600)\n\nprint('ready', flush=True)\nnap()\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == b"ready\n"
            until = time.monotonic() + 120
            while stat.state(job.pid, job.pid) != "S":  # it naps
                assert time.monotonic() < until
                time.sleep(0.02)
            for seconds in (2.0, 10.0, 60.0):  # the slower the machine, the later py-spy begins
                looks = Looks(job.pid)
                time.sleep(seconds)
                stacks = looks.end()
                # one that is ended before it has begun says nothing
                begun = looks.why is None or not looks.why.endswith("no error message")
                if begun and (looks.why or sum(stack.looks for stack in stacks) >= 3):
                    break
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
