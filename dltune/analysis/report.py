"""The derived figures of a profile as plain data, for `--json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.why import why


def report(analysis: Analysis, top: int | None = None) -> dict[str, Any]:
    """Figures per op (the `top` ones that take most time; None: all), ceilings, sentences.

    Names and units are those of the classes they are from: `Rates`, `Position`, `Ceiling`.
    """
    return {
        "roofline": asdict(analysis.roofline),
        "steps": [
            {
                "signature": step.signature,
                "parts": {part.name: part.seconds for part in step.parts},
            }
            for step in analysis.profile.steps
        ],
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
