"""Transcripts: commands with what they printed and wrote, compared to the letter.

A transcript is text: a line `$ dltune ...`, what the command printed (a line of stderr begins with
`! `), the files that it wrote, and its exit code if that is not 0. Long outputs and files are kept
as a hash; `rerun` puts them all into a folder, so that those of two revisions can be compared.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from dltune import __version__
from dltune.cli import main

HERE = Path(__file__).parent / "golden"
PROMPT = "$ dltune "
LONGEST = 60  # lines of an output that is kept as it is
# numbers of schemas, the version, times of creation, digests of other documents, measured seconds
CHANGING = (
    (re.compile(r'("searched": ?)[\d.e-]+'), r"\1_"),
    (re.compile(r'("schema": ?"dltune\.[a-z-]+)/\d+"'), r'\1"'),
    (re.compile(r'("(?:created|digest|sha256)": ?)"[^"]*"'), r'\1""'),
    (re.compile(re.escape(__version__)), "VERSION"),
)


def commands(file: Path) -> list[str]:
    """Return the commands of a transcript, in order."""
    lines = file.read_text().splitlines()
    return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]


def rerun(command: str, folder: Path, outputs: Path | None = None) -> str:
    """Return the transcript of a command run in `folder`; `outputs` receives what is kept as a
    hash."""
    before = _states(folder)
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", ["dltune", *shlex.split(command)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    name = re.sub(r"\W+", "_", command)[:150]

    def kept(text: str, what: str) -> Iterator[str]:
        text = _steady(text, folder)
        lines = text.splitlines()
        if what in ("stdout", "stderr") and len(lines) <= LONGEST and len(text) <= 200 * LONGEST:
            yield from (f"! {line}" if what == "stderr" else line for line in lines)
            return
        if outputs:
            (outputs / f"{name}.{what.replace('/', '_')}").write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        yield f"[{what}: {len(lines)} lines, {digest}]"

    lines = [PROMPT + command, *kept(out.getvalue(), "stdout"), *kept(err.getvalue(), "stderr")]
    for path, state in sorted(_states(folder).items()):
        if before.get(path) != state:
            lines += kept(_content(folder / path), path)
    if code:
        lines.append(f"[exit {code}]")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _states(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _content(path: Path) -> str:
    data = path.read_bytes()
    try:
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except UnicodeDecodeError:
        return "binary"


def _steady(text: str, folder: Path) -> str:
    with contextlib.suppress(ValueError):  # the last digits are those of a CPU
        text = json.dumps(
            json.loads(text, parse_float=lambda digits: float(f"{float(digits):.5g}")), indent=1
        )
    text = text.replace(str(folder), ".")
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    return text
