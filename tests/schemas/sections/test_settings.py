"""A plan's section on settings is checked whole, each fault by its path."""

from __future__ import annotations

import math

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.schemas.settings import Choice, Effect, Measured, SettingsPlan

MEASURED = Measured(0.9, 0.8, 1.0, 0.95, 12)
EFFECT = Effect((Choice("onednn", "on"),), (), "rounding", "helps", MEASURED, "")
SECTION = SettingsPlan(
    ("python",), EFFECT.choices, "rounding", MEASURED, None, (EFFECT,), (), 60.0, None
)


def measured(**changes: object) -> dict[str, object]:
    return {"whole": msgspec.structs.replace(MEASURED, **changes)}


def effect(**changes: object) -> dict[str, object]:
    return {"effects": (msgspec.structs.replace(EFFECT, **changes),)}


def test_a_good_section() -> None:
    assert struct_faults("settings", SECTION) == []
    assert (
        struct_faults("settings", msgspec.structs.replace(SECTION, **measured(low=None, high=None)))
        == []
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seconds": math.nan}, "seconds must be finite and not negative, got nan"),
        (measured(rounds=0), "whole.rounds must be at least 1, got 0"),
        (measured(ratio=-0.1), "whole.ratio must be finite and not negative, got -0.1"),
        (measured(confidence=1.0), "whole.confidence must be above 0 and below 1, got 1.0"),
        (measured(high=0.7), "whole.high must be at least 0.8 (the low end), got 0.7"),
        (effect(choices=()), "effects[0].choices must not be empty"),
        (
            effect(measured=None),
            "effects[0].verdict 'helps' needs a measurement, but measured is null",
        ),
    ],
)
def test_what_cannot_be_true_is_told(changes: dict[str, object], told: str) -> None:
    assert struct_faults("settings", msgspec.structs.replace(SECTION, **changes)) == [
        f"settings.{told}"
    ]
