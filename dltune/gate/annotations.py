"""A result where reviewers look: workflow commands of GitHub Actions, GitLab's code quality."""

from __future__ import annotations

import hashlib

import msgspec

from dltune.documents.gate import Outcome, Result, Verdict
from dltune.gate import figures
from dltune.visible import visible

GITHUB: dict[Outcome, str] = {"fail": "error", "undecided": "warning", "pass": "notice"}
GITLAB: dict[Outcome, str] = {"fail": "major", "undecided": "info"}
LONGEST = 1000


def github(result: Result) -> str:
    """A line for each limit, as the runner of GitHub Actions obeys them."""
    return "".join(
        f"::{GITHUB[v.outcome]} title={_property(f'dltune gate: {visible(v.metric)}')}::"
        f"{_data(visible(figures.sentence(v), LONGEST))}\n"
        for v in result.verdicts
    )


def gitlab(result: Result, path: str) -> bytes:
    """A code quality report (JSON) of the limits that do not hold or are undecided; `path` is the
    file that they are shown at."""
    return msgspec.json.format(
        msgspec.json.encode(
            [
                {
                    "description": visible(figures.sentence(v), LONGEST),
                    "check_name": f"dltune gate {v.over}",
                    "fingerprint": _fingerprint(v),
                    "severity": GITLAB[v.outcome],
                    "location": {"path": path, "lines": {"begin": 1}},
                }
                for v in result.verdicts
                if v.outcome != "pass"
            ]
        ),
        indent=1,
    )


def _fingerprint(verdict: Verdict) -> str:
    """Stays the same while the same limit is at fault, so that GitLab can tell new from old."""
    told = f"{verdict.metric}\0{verdict.over}\0{verdict.outcome}"
    return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
