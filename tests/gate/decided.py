"""Made-up results of gates."""

from __future__ import annotations

from dltune.schemas import gate as doc
from dltune.schemas.machine import SCHEMA as MACHINE
from dltune.schemas.machine import Core, Machine

HERE = Machine(MACHINE, "made up", (Core((0,), 0, 0, 0), Core((1,), 0, 0, 0)))

# markup, workflow commands, controls, direction marks, table cells, mentions, lone surrogate, 10 kB
HOSTILE = (
    "<script>alert(1)</script>",
    "]]>&lt;",
    "a|b\n::error::owned",
    "\x1b[31mred\x07\x00",
    "\u202egnp.exe\u2066",
    "@someone #1 [x](http://x) **b** `c` ~~~",
    "%0A::set-output name=x::y",
    "\ud800 lone",
    "\u2028line",
    "\ufffe",
    "x" * 10_000,
)


def verdict(metric: str = "step_time", outcome: doc.Outcome = "pass", **changed) -> doc.Verdict:
    values = {
        "metric": metric,
        "unit": "s",
        "over": "ratio",
        "limit": 1.03,
        "outcome": outcome,
        "median": 1.01,
        "low": 0.99,
        "high": 1.02,
        "base": 0.010,
        "head": 0.0101,
        "rounds": 12,
        "why": "the whole interval is at or below the limit",
    }
    return doc.Verdict(**(values | changed))


def result(*verdicts: doc.Verdict, passed: bool = True, **changed) -> doc.Result:
    outcomes = {v.outcome for v in verdicts}
    values = {
        "schema": doc.RESULT_SCHEMA,
        "created": "2026-01-02T03:04:05+00:00",
        "dltune": "0.1.0",
        "machine": HERE,
        "command": ("python", "train.py"),
        "kind": "steps",
        "base": doc.Revision("main", "1" * 40),
        "head": doc.Revision("HEAD", "2" * 40),
        "confidence": 0.98,
        "budget": 300.0,
        "seconds": 120.0,
        "outcome": "fail" if "fail" in outcomes else "undecided" if len(outcomes) > 1 else "pass",
        "passed": passed,
        "verdicts": verdicts,
        "measured": {},
        "notes": (),
    }
    return doc.Result(**(values | changed))
