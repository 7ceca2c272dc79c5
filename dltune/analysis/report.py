"""The derived figures of a profile as plain data, for `--json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from dltune.analysis.advice import advice_of
from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.why import attack, why


def report(analysis: Analysis, top: int | None = None) -> dict[str, Any]:
    """Figures per op (the `top` ones that take most time; None: all), ceilings, sentences, advice.

    Names and units are those of the classes they are from: `Rates`, `Position`, `Ceiling`.
    """
    return {
        "roofline": asdict(analysis.roofline),
        "steps": [
            {
                "signature": step.signature,
                "parts": {part.name: part.seconds for part in step.parts},
                "attack": attack(step),
            }
            for step in analysis.profile.steps
        ],
        "advice": [asdict(advice) for advice in advice_of(analysis)],
        "ops": [_op(figures, analysis) for figures in analysis.ops[:top]],
    }


def _op(figures: Figures, analysis: Analysis) -> dict[str, Any]:
    cause, sentence = why(figures, analysis)
    best = figures.best
    return {
        "key": figures.op.key,
        "count": figures.op.count,
        "serial": figures.serial,
        "share": figures.share,
        "operations": figures.operations,
        "moved": figures.moved,
        "best": {"threads": best.time.threads, "placement": best.time.placement} if best else None,
        "position": asdict(figures.position) if figures.position else None,
        "cause": cause,
        "why": sentence,
        "cases": [
            {
                "threads": case.time.threads,
                "placement": case.time.placement,
                "seconds": case.time.median,
                **asdict(case.rates),
                "counts": [msgspec.structs.asdict(count) for count in case.time.counts],
            }
            for case in figures.cases
        ],
    }
