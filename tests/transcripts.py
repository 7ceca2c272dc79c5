"""Transcripts: commands with what they printed and wrote, compared to the letter.

A transcript is text: a line `$ dltune ...`, what the command printed (a line of stderr begins with
`! `), the files that it wrote, and its exit code if that is not 0. Long outputs and files are kept
as a hash; `rerun` puts them all into a folder, so that those of two revisions can be compared.

`needed` returns the systems of dltune that a command needs, so that the others are compared where a
system is not installed.
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
from typing import Any
from unittest import mock

from owners import SYSTEMS, owner

from dltune import __version__
from dltune.cli import main

HERE = Path(__file__).parent / "golden"
PROMPT = "$ dltune "
# beginnings of lists that have names of all systems
LISTS = (
    *("threads, settings, ", "batch_norm or fused_optimizer or "),
    *("dltune.profile, dltune.plan", "dltune.bench, dltune.diagnosis"),
)
LEFT_OUT = "left-out"  # schema of a file that a command would have written
LONGEST = 60  # lines of an output that is kept as it is
# numbers of schemas, the version, times of creation, digests of other documents, measured seconds
CHANGING = (
    (re.compile(r'("searched": ?)[\d.e-]+'), r"\1_"),
    (re.compile(r'("schema": ?"dltune\.[a-z-]+)/\d+"'), r'\1"'),
    (re.compile(r'("(?:created|digest|sha256)": ?)"[^"]*"'), r'\1""'),
    (re.compile(r"(edges of the graph in )\d+ ms"), r"\1_ ms"),
    (re.compile(re.escape(__version__)), "VERSION"),
)


def blocks(file: Path) -> list[str]:
    """Return the commands of a transcript with what they printed and wrote, in order."""
    _, *found = re.split(rf"^{re.escape(PROMPT)}", file.read_text(), flags=re.M)
    return [PROMPT + block for block in found]


def command(block: str) -> str:
    return block.splitlines()[0].removeprefix(PROMPT)


def needed(block: str, folder: Path) -> set[str]:
    """Return the systems without which the command cannot be run in `folder`, or prints other
    lists."""
    words = shlex.split(command(block))
    if words[:1] in ([], ["--help"]) or words in (["plan"], ["plan", "--help"]):
        return set(SYSTEMS)
    if any(names in block for names in LISTS):
        return set(SYSTEMS)
    found = owner("commands", words[0])
    found |= owner("planners", words[1]) if words[0] == "plan" else set()
    replaced = _written(block) if "--overwrite" in words else []
    for word in words:
        if word not in replaced:
            found |= _of_document(folder / word)
    if words[0] in ("diagnose", "report", "show") and "--csv" not in words:
        # a rule of this system reports the time that a step waits for other processes
        found |= {"ranks"} if any(_communicates(folder / word) for word in words) else set()
    return found


def _written(block: str) -> list[str]:
    """Return the names of the files that a command wrote."""
    names = re.findall(r"^\[(\S+): \d+ lines, ", block, re.M)
    return [name for name in names if name not in ("stdout", "stderr")]


def leave_out(block: str, folder: Path) -> None:
    """Write files that need the systems of a command in place of those that it wrote."""
    systems = sorted(needed(block, folder))
    for name in _written(block):
        (folder / name).write_text(json.dumps({"schema": LEFT_OUT, "systems": systems}))


def _of_document(path: Path) -> set[str]:
    """Return the systems that a document needs."""
    document = _document(path)
    kind = str(document.get("schema", "")).partition("/")[0]
    if kind == LEFT_OUT:
        return set(document["systems"])
    found = owner("documents", kind)
    for section in document.get("sections", ()) if kind == "dltune.plan" else ():
        found |= owner("planners", section)
    return found


def _communicates(path: Path) -> bool:
    document = _document(path)
    steps = document["steps"] if str(document.get("schema")).startswith("dltune.profile/") else ()
    parts = [part for step in steps for part in step.get("parts", ())]
    return any(part["name"] == "communication" and part["seconds"] > 0 for part in parts)


def _document(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; nothing if it is none."""
    with contextlib.suppress(ValueError, OSError):
        document = json.loads(_content(path))
        if isinstance(document, dict):
            return document
    return {}


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
