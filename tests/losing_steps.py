"""Profiles of steps that lose time, and what is found in them."""

from __future__ import annotations

import msgspec
from keyed import keyed
from looked import looked
from synthetic import machine, node, profile

from dltune.analysis.roofline import analyse
from dltune.findings.evidence import Evidence
from dltune.schemas.diagnosis import Finding
from dltune.schemas.profile import Line, Part, Profile


def parts(made: Profile, **seconds: float) -> Profile:
    step = made.steps[0]
    told = tuple(Part(name, value) for name, value in seconds.items())  # type: ignore[arg-type]
    return msgspec.structs.replace(made, steps=(msgspec.structs.replace(step, parts=told),))


def plain(*ops, **more) -> Profile:
    nodes = [node(op.type, index) for index, op in enumerate(ops)]
    return profile(machine(2), ops, {"train": nodes}, span=0.03, **more)


def owned(key: str, own: float, count: int = 1):
    return msgspec.structs.replace(keyed(key, count=count), own=own)


def wrong(made: Profile) -> list[Finding]:
    """What something is to be done about."""
    return [one for one in looked(Evidence(profile=analyse(made))) if one.fix]


def step(*, lines=(), **seconds) -> tuple[Finding, ...]:
    """Of a step with these parts and no ops that were measured."""
    made = profile(machine(2), [], {"train": [node("Conv2D", None)]}, span=0.1)
    first = msgspec.structs.replace(
        parts(made, **seconds).steps[0], lines=tuple(Line(where, share) for where, share in lines)
    )
    return looked(Evidence(profile=analyse(msgspec.structs.replace(made, steps=(first,)))))


def eager(*ops: tuple[str, float, float], name: str = "Optimizer.step#Adam.step") -> Profile:
    """A step of PyTorch's, of ops that ran from one time to another, and 1 ms of which no op is."""
    own = [owned(f"{name.rpartition('/')[2]}(float[8])", end - start) for name, start, end in ops]
    made = plain(*own)
    nodes = tuple(
        msgspec.structs.replace(it, name=name, start=start, end=end)
        for it, (name, start, end) in zip(made.steps[0].nodes, ops, strict=True)
    )
    step = msgspec.structs.replace(made.steps[0], name=name, nodes=nodes)
    framework = msgspec.structs.replace(made.framework, name="pytorch")
    made = msgspec.structs.replace(made, framework=framework, steps=(step,))
    ran = sum(end - start for _, start, end in ops)
    return parts(made, ops=ran, python=ops[-1][2] - ran + 1e-3)
