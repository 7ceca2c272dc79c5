"""A trained model, bound to the profile whose ops it predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dltune.analysis.convolution import filters
from dltune.documents.profile import Placement, Profile
from dltune.model.curve import Case
from dltune.model.prediction import Prediction
from dltune.model.regression.train import Trained


@dataclass(frozen=True)
class Regression:
    """Predictions by op key and case. `missing`: keys of ops that lack a sample case."""

    predictions: Mapping[str, Mapping[Case, Prediction]]
    missing: tuple[str, ...]

    @classmethod
    def on(cls, trained: Trained, profile: Profile) -> Regression:
        """Predicts all ops of the profile that were measured at the sample cases.

        Times are held within those that were trained on: regressors know no sign. The error is the
        median one of each case in training, on ops left out of it.
        """
        known = filters(profile.ops)
        rows, missing = {}, []
        for op in profile.ops:
            row = trained.layout.row(op, known)
            if row is not None:
                rows[op.key] = row
            elif op.times:
                missing.append(op.key)
        found: dict[str, dict[Case, Prediction]] = {key: {} for key in rows}
        for case in trained.models if rows else ():
            predicted = trained.raw(case, list(rows.values()))
            for key, raw in zip(rows, predicted, strict=True):
                seconds = min(max(raw, trained.least), trained.most)
                found[key][case] = Prediction(seconds, seconds * trained.errors[case])
        return cls(found, tuple(missing))

    def predict(self, key: str, threads: int, placement: Placement) -> Prediction:
        """Raises KeyError for an op that lacks a sample, or a case that has no model."""
        return self.predictions[key][threads, placement]
