"""What every command shares: the list of commands, completion, and the debug log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dltune.cli import groups


def dltune(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("dltune")
    return subprocess.run(
        [program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_help_lists_every_command_in_its_group():
    shown = dltune("--help").stdout
    for group, commands in groups().items():
        assert f"{group}:" in shown
        for name, text in commands.items():
            assert f"{name} " in shown
            assert len(text) <= 62, f"{name}: longer than a line of 80 columns"


def test_a_misspelt_command_is_refused_with_the_nearest():
    refused = dltune("diagnos")
    assert refused.returncode == 2
    assert "did you mean dltune diagnose?" in refused.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_commands_and_options_are_completed(shell):
    def completions(*words: str) -> str:
        return dltune(
            _DLTUNE_COMPLETE=f"{shell}_complete",
            COMP_WORDS=" ".join(("dltune", *words)),
            COMP_CWORD=str(len(words)),
        ).stdout

    assert "diagnose" in completions("dia")
    for commands in groups().values():
        assert set(commands) <= set(completions("").replace(",", "\n").split("\n"))
    assert "--budget" in completions("diagnose", "--bu")


def test_the_script_for_completion_is_printed():
    assert "complete -o nosort -F" in dltune(_DLTUNE_COMPLETE="bash_source").stdout
    assert "#compdef dltune" in dltune(_DLTUNE_COMPLETE="zsh_source").stdout


def test_the_debug_log_has_processes_and_the_end_and_no_foreign_variables(tmp_path):
    log = tmp_path / "log.txt"
    job = ("diagnose", "--budget", "5s", "--", sys.executable, "-c", "import nowhere")
    ended = dltune(*job, DLTUNE_LOG=str(log), SOME_SECRET="xyzzy")
    assert ended.returncode != 0
    text = log.read_text()
    assert f"starting a process: {sys.executable} -c" in text
    assert "with other values of DLTUNE_SOCKET, PYTHONPATH" in text
    assert "started as: dltune diagnose --budget 5s" in text
    assert "ended by " in text
    assert "xyzzy" not in text


def test_debug_logs_to_stderr_and_not_to_stdout():
    shown = dltune("--debug", "doctor", "--json")
    assert "started as: dltune --debug doctor --json" in shown.stderr
    assert shown.stdout.startswith("{")


def test_a_log_that_cannot_be_written_is_refused(tmp_path):
    refused = dltune("doctor", DLTUNE_LOG=str(tmp_path / "nowhere" / "log.txt"))
    assert refused.returncode == 2
    assert "DLTUNE_LOG: cannot write" in refused.stderr
