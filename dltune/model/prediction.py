"""What every performance model gives: an op's seconds at a case, and how far off they may be."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dltune.documents.profile import Placement


class Prediction(NamedTuple):
    """`error`: the truth is likely within `seconds` plus or minus this, in seconds."""

    seconds: float
    error: float


class Model(Protocol):
    """Hill climbing's curves (dltune.model.climbed) and regression (dltune.model.regression)."""

    def predict(self, key: str, threads: int, placement: Placement) -> Prediction:
        """Raises KeyError for an op that the model knows nothing of, or no such case."""
        ...
