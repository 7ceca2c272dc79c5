"""What is tried on a job, in which order, and what is not and why."""

from __future__ import annotations

import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.space import SPACE
from dltune.tune.candidates import Offer, offer

JOB = ("python", "train.py")


def here(**environment: str) -> Circumstances:
    return Circumstances(synthetic.machine(4), JOB, environment)


def names(found: Offer) -> list[str]:
    return list(dict.fromkeys(option.choice.setting for option in found.options))


def why(found: Offer, name: str) -> str:
    return next(u.why for u in found.untried if u.setting == name and u.value is None)


def test_every_setting_is_tried_or_told_of() -> None:
    found = offer(here(), allow="lossy")
    told = set(names(found)) | {untried.setting for untried in found.untried}
    assert told == {setting.name for setting in SPACE}


def test_lossy_and_rounding_only_where_they_are_allowed() -> None:
    assert "precision" in names(offer(here(), allow="lossy"))
    found = offer(here(), allow="rounding")
    assert "precision" not in names(found)
    assert why(found, "precision") == "it is lossy; --allow lossy would try it"
    exact = offer(here(), allow="exact")
    assert {option.kind for option in exact.options} == {"exact"}
    assert "batch_norm" not in names(exact)


def test_what_the_user_has_set_stays() -> None:
    found = offer(here(TF_ENABLE_ONEDNN_OPTS="0"), allow="rounding")
    assert "onednn" not in names(found)
    assert "TF_ENABLE_ONEDNN_OPTS=0" in why(found, "onednn")


def test_the_value_in_force_is_not_tried() -> None:
    found = offer(here(), allow="rounding")
    default = next(u for u in found.untried if u.setting == "threads")
    assert default.value is not None
    assert default.value not in [o.choice.value for o in found.options]


def test_what_is_named_comes_first_and_what_is_left_out_does_not() -> None:
    found = offer(here(), allow="rounding", first=["xla", "threads"], without=["batch_norm"])
    assert names(found)[:2] == ["xla", "threads"]
    assert why(found, "batch_norm") == "excluded by --only or --without"
    assert names(offer(here(), allow="rounding", only=["threads"])) == ["threads"]


def test_the_recommendation_is_one_of_the_options() -> None:
    found = offer(here(), allow="rounding")
    assert found.recommended
    assert found.recommended[0] in [option.choice for option in found.options]
    assert offer(here(), allow="rounding", without=["threads"]).recommended is None
    assert offer(here(TF_NUM_INTRAOP_THREADS="3"), allow="rounding").recommended is None


def test_unknown_names_and_nothing_left() -> None:
    with pytest.raises(UsageError, match="no setting 'bach_norm'") as caught:
        offer(here(), allow="rounding", only=["bach_norm"])
    assert "batch_norm" in str(caught.value.remedy)
    with pytest.raises(UsageError, match="no setting can be tried") as caught:
        offer(here(), allow="exact", only=["precision"])
    assert "precision: it is lossy" in str(caught.value)
