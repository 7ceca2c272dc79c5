"""Two profiles and two benches: what is found, in which order, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parents[1] / "report"))

import exhibits
import synthetic

from dltune.base.errors import UsageError
from dltune.compare import benches, profiles
from dltune.compare.change import compared
from dltune.schemas.profile import Framework, Profile, Samples


def slowed(profile: Profile, kind: str, factor: float) -> Profile:
    """All ops of that type take `factor` times as long."""
    ops = tuple(
        msgspec.structs.replace(
            op,
            times=tuple(
                msgspec.structs.replace(t, min=t.min * factor, median=t.median * factor)
                for t in op.times
            ),
        )
        if op.type == kind
        else op
        for op in profile.ops
    )
    return msgspec.structs.replace(profile, ops=ops)


def test_the_same_profile_has_not_changed() -> None:
    profile = exhibits.profile()
    found = profiles.compare(profile, profile)
    assert found.circumstances == ()
    assert found.same_graph
    assert {op.verdict for op in found.ops} == {"noise"}
    assert {step.verdict for step in found.steps} == {"noise"}
    assert found.total[0] == found.total[1]
    assert found.appeared == found.went == ()


def test_a_step_that_is_another_now_is_held_against_no_other() -> None:
    """Of two, as a GAN has, which come in the order of their times."""
    first = exhibits.profile().steps[0]
    a, b, changed = (
        msgspec.structs.replace(first, signature=name, name=name, wall=Samples(9, t, t, 0.0))
        for name, t in (("discriminator", 2.0), ("generator", 1.0), ("deeper", 0.5))
    )
    before = msgspec.structs.replace(exhibits.profile(), steps=(a, b))
    after = msgspec.structs.replace(exhibits.profile(), steps=(b, changed))
    found = profiles.compare(before, after).steps
    assert {(one.name, one.change.a, one.change.b) for one in found} == {
        ("discriminator", 2.0, 0.5),
        ("generator", 1.0, 1.0),
    }


def test_what_got_slower_comes_first() -> None:
    profile = exhibits.profile(layers=12)
    found = profiles.compare(profile, slowed(profile, "Conv2D", 1.3))
    changed = [op for op in found.ops if op.verdict == "slower"]
    assert {op.type for op in changed} == {"Conv2D"}
    assert len(changed) == 12
    assert [abs(op.effect) for op in found.ops] == sorted(
        (abs(op.effect) for op in found.ops), reverse=True
    )
    first = found.ops[0]
    assert first.change.ratio == pytest.approx(1.3)
    assert first.effect == pytest.approx(0.3 * first.change.a * first.count_a)
    assert first.threads == 2
    back = profiles.compare(slowed(profile, "Conv2D", 1.3), profile)
    assert {op.type for op in back.ops if op.verdict == "faster"} == {"Conv2D"}


def test_ops_that_appeared_or_went_and_more_runs() -> None:
    profile = exhibits.profile()
    gone, kept = profile.ops[0], profile.ops[1]
    extra = synthetic.op("Fresh", None, profile.machine, count=3)
    more = msgspec.structs.replace(kept, count=kept.count + 2)
    other = msgspec.structs.replace(profile, ops=(*profile.ops[2:], more, extra))
    found = profiles.compare(profile, other)
    assert [op.key for op in found.went] == [gone.key]
    assert [(op.key, op.count) for op in found.appeared] == [(extra.key, 3)]
    again = next(op for op in found.ops if op.key == kept.key)
    assert again.count_b == again.count_a + 2
    assert again.effect == pytest.approx(2 * again.change.a)


def test_other_circumstances_are_told() -> None:
    profile = exhibits.profile()
    other = msgspec.structs.replace(
        profile,
        machine=synthetic.machine(4, name="another"),
        framework=Framework("tensorflow", "2.16.2", "x", "3.12"),
        settings=msgspec.structs.replace(profile.settings, inter=7),
    )
    told = {difference.what: difference for difference in
            profiles.compare(profile, other).circumstances}  # fmt: skip
    assert {"machine", "cores", "framework", "Python", "inter-op threads"} <= told.keys()
    assert (told["cores"].a, told["cores"].b) == ("2", "4")


def test_nothing_in_common() -> None:
    profile = exhibits.profile()
    empty = msgspec.structs.replace(profile, ops=(), steps=())
    found = profiles.compare(profile, empty)
    assert found.ops == ()
    assert found.steps == ()
    assert len(found.went) == len(profile.ops)


def test_benches() -> None:
    profile = exhibits.profile()
    plan = exhibits.plan(profile)
    rounds = [0.050, 0.051, 0.049, 0.0505, 0.0495, 0.0502, 0.0498, 0.0507]
    a = exhibits.bench(plan, profile, {"recommended": rounds, "plan": [t * 0.9 for t in rounds]})
    # the whole machine is 20 % slower, the plan 40 %
    b = exhibits.bench(
        plan,
        profile,
        {"recommended": [t * 1.2 for t in rounds], "plan": [t * 0.9 * 1.4 for t in rounds]},
    )
    found = benches.compare(a, b)
    assert found.circumstances == ()
    assert [s.name for s in found.settings] == ["plan", "recommended"]
    planned, reference = found.settings
    assert (planned.verdict, reference.verdict) == ("slower", "slower")
    assert reference.relative is None
    assert planned.relative is not None
    assert planned.relative.ratio == pytest.approx(1.4 / 1.2)
    assert planned.relative_verdict == "slower"
    same = benches.compare(a, a)
    assert {s.verdict for s in same.settings} == {"noise"}
    other = msgspec.structs.replace(b, reference="plan")
    assert benches.compare(a, other).reference is None


def test_only_two_of_a_kind(tmp_path: Path) -> None:
    profile = exhibits.profile()
    plan = exhibits.plan(profile)
    documents = {"profile": profile, "plan": plan}
    documents["bench"] = exhibits.bench(plan, profile, {"recommended": [0.1, 0.2]})
    for name, document in documents.items():
        (tmp_path / name).write_bytes(msgspec.json.encode(document))
    with pytest.raises(UsageError, match=r"a dltune.bench document and .* a dltune.profile"):
        compared(tmp_path / "bench", tmp_path / "profile")
    with pytest.raises(UsageError, match="cannot be compared"):
        compared(tmp_path / "plan", tmp_path / "plan")
    with pytest.raises(UsageError, match="cannot read"):
        compared(tmp_path / "bench", tmp_path / "missing")
    assert isinstance(compared(tmp_path / "bench", tmp_path / "bench"), benches.Comparison)
