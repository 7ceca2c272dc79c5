"""What is told of a job's output that was kept aside."""

from __future__ import annotations

from pathlib import Path

from dltune.job.subprocesses import LINES, last_words


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"step {n}\n" for n in range(100_000)))
    first, *lines = last_words(log, "the job under plan").splitlines()
    assert first == "the last lines of the job under plan:"
    assert len(lines) == LINES
    assert lines[-1] == "  step 99999"


def test_what_is_no_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe and then\n")
    assert last_words(log).endswith(" and then")


def test_a_job_that_wrote_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    assert last_words(log) == ""


def test_what_torchrun_says_of_its_ranks_is_none_of_theirs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "step 1\nRuntimeError: address already in use\n"
        + "W1128 02:45:00.10 812 torch/distributed/elastic/multiprocessing/api.py:1029] Sending "
        "process 816 closing signal SIGTERM\n"
        * 16
        + "E1128 02:45:00.12 812 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: 1) local_rank: 0 (pid: 815) of binary: python\n" + "traceback\n" * 40
    )
    assert last_words(log).splitlines()[1:] == [
        "  step 1",
        "  RuntimeError: address already in use",
    ]
