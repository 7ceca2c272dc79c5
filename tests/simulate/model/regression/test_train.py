"""Models that are trained on ops of a known law."""

from __future__ import annotations

import msgspec
import profile_lawful as made
import pytest

from dltune.base.errors import UsageError
from dltune.simulate.regression import Layout, Regression, evaluated, train


def trained(regressor: str = "random forest", samples: int = 1, logarithms: bool = True, **more):
    profiles = [made.profile(seed=1, **more), made.profile(seed=2, **more)]
    return train(
        profiles, made.MACHINE, regressor=regressor, samples=samples, logarithms=logarithms
    )


@pytest.mark.parametrize("regressor", made.REGRESSORS)
def test_every_regressor_trains_a_model_for_each_case(regressor):
    found = evaluated(trained(regressor), [made.profile(seed=3)])
    assert [n for n, _ in found] == [1, 2, 3, 4]
    assert all(score.ops == 60 for score in found.values())


def test_what_is_learned_is_the_law():
    for score in evaluated(trained("least squares"), [made.profile(seed=3)]).values():
        assert score.accuracy > 0.95
        assert score.r2 > 0.95


def test_training_twice_gives_the_same():
    test = [made.profile(seed=3)]
    assert evaluated(trained(), test) == evaluated(trained(), test)


def test_events_are_divided_by_instructions_where_these_were_counted():
    events = ("cycles", "instructions")
    layout = Layout.of([made.profile(events=events)], [(1, "spread"), (4, "spread")])
    assert layout.events == events
    assert layout.names[:4] == (
        "seconds at 1 spread",
        "cycles/instructions at 1 spread",
        "seconds at 4 spread",
        "cycles/instructions at 4 spread",
    )
    op = made.profile(events=events).ops[0]
    row = layout.row(op, frozenset())
    assert row is not None
    assert row[0] == op.times[0].min
    assert row[1] == pytest.approx(0.5)


def test_without_instructions_events_are_divided_by_the_time():
    layout = Layout.of([made.profile(events=("page-faults",))], [(1, "spread")])
    row = layout.row(made.profile(events=("page-faults",)).ops[0], frozenset())
    assert layout.names[1] == "page-faults/seconds at 1 spread"
    assert row is not None
    assert row[1] == pytest.approx(1e9)


def test_only_events_that_every_op_has_are_features():
    with_, without = made.profile(events=("cycles", "faults")), made.profile(events=("faults",))
    assert Layout.of([with_, without], [(1, "spread")]).events == ("faults",)


def test_an_op_without_the_sample_is_missing():
    profile = made.profile(seed=3)
    op = msgspec.structs.replace(profile.ops[0], times=profile.ops[0].times[1:])
    profile = msgspec.structs.replace(profile, ops=(op, *profile.ops[1:]))
    model = Regression.on(trained(), profile)
    assert model.missing == (op.key,)
    with pytest.raises(KeyError):
        model.predict(op.key, 2, "spread")
    known = profile.ops[1]
    for time in known.times:
        found = model.predict(known.key, time.threads, time.placement)
        assert found.seconds > 0
        assert found.error >= 0


def test_a_prediction_is_never_negative():
    model = Regression.on(trained("SVR poly", logarithms=False), made.profile(seed=3))
    cases = [p for found in model.predictions.values() for p in found.values()]
    assert min(p.seconds for p in cases) > 0


def test_too_few_ops():
    with pytest.raises(
        UsageError, match="too few ops to train on: 3 were measured at all sample cases"
    ):
        train([made.profile(3)], made.MACHINE, regressor="k-neighbours", samples=1)


def test_more_samples_than_thread_counts():
    with pytest.raises(UsageError, match="--samples 8 is too many: this machine has 4"):
        trained(samples=8)
