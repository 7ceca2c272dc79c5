"""The network and the devices that are planned for: documents, or published ones by name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune.base.documents import digest, schema
from dltune.base.errors import UsageError
from dltune.schemas import profile as profiles
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile
from dltune.systems.parallelism.model import called_times, local_times
from dltune.systems.parallelism.model.called import called
from dltune.systems.parallelism.model.costs import Costs, roofline
from dltune.systems.parallelism.model.profiled import Measured, measured
from dltune.systems.parallelism.model.timed import Timed
from dltune.systems.parallelism.schemas import operators, topology
from dltune.systems.parallelism.schemas.operator_times import OperatorTimes
from dltune.systems.parallelism.schemas.operators import Operators
from dltune.systems.parallelism.schemas.strategy import Parallelism
from dltune.systems.parallelism.schemas.topology import Topology


@dataclass(frozen=True)
class Given:
    """A network. `name`: of a published network, with its `batch`. `profile`: its source, with
    times `measured` there. `times`: of all parts into which its operators can be divided."""

    graph: Operators
    name: str = ""
    batch: int | None = None
    profile: Profile | None = None
    measured: Measured | None = None
    times: OperatorTimes | None = None

    def costs(self, topology: Topology) -> Costs:
        """Return the costs of its operators on these devices."""
        if self.times is not None:
            return local_times.measured(self.graph, self.times)
        if self.profile is None or self.measured is None:
            return roofline
        return Timed(self.measured, self.profile.machine, topology)

    def timed(self, topology: Topology) -> bool:
        """True if the times are measured for all kinds of the devices."""
        kinds = {device.kind for device in topology.devices}
        if self.times is not None:
            return True
        return self.measured is not None and kinds == {machine(self).name}


def network(named: Path | str, batch: int | None) -> Given:
    """A document's in a file, or the published one of that name. Raises UsageError."""
    if isinstance(named, str):
        return _published(named, batch)
    if batch is not None:
        raise UsageError(
            f"--batch applies only to published networks; the batch size of {named} is fixed",
            remedy="omit --batch",
        )
    kind = schema(named).rpartition("/")[0]
    if kind == "dltune.profile":
        return profiled(profiles.load(named))
    return Given(operators.load(named))


def profiled(profile: Profile) -> Given:
    """Return the profile's step with the most time. Raises UsageError where it has no operators."""
    if not profile.steps:
        raise UsageError("the profile contains no steps", remedy="profile a job that trains")
    step = max(profile.steps, key=lambda one: one.share)
    if profile.framework.capabilities.is_eager:
        if profile.calls is None:
            raise UsageError(
                "the profile contains no step that was recorded call by call",
                remedy="profile the job again without torch.compile, whose calls are not recorded",
            )
        graph = called(profile.calls, step.name or "model")
        found = called_times.measured(profile.calls, graph, profile)
    else:
        found = measured(step, profile.ops)
    return Given(found.operators, profile=profile, measured=found)


def devices(named: Path | str) -> Topology:
    """A document's in a file, or a published cluster, as `p100:16`. Raises UsageError."""
    if isinstance(named, Path):
        return topology.load(named)
    from dltune.systems.parallelism.model.clusters import CLUSTERS

    name, _, count = named.partition(":")
    if name.lower() not in CLUSTERS or not re.fullmatch(r"\d{1,4}", count):
        raise UsageError(
            f"{named!r} is neither a file nor a published cluster with a number of devices",
            remedy=f"pass a topology document, or one of {', '.join(CLUSTERS)} with a number of "
            "devices, such as p100:16",
        )
    return CLUSTERS[name.lower()](int(count))


def remarks(given: Given, topology: Topology) -> Iterator[str]:
    """Yield warnings."""
    if given.profile is None or given.measured is None or given.times is not None:
        return
    if given.profile.partial is not None:
        yield f"this profile is partial: {given.profile.partial}"
    if given.measured.uncounted:
        types = ", ".join(given.measured.uncounted)
        yield f"the number of operations is unknown for {types}, and counted as 0"
    if not given.timed(topology):
        yield (
            "the profile's times apply only to devices of the kind "
            f"{given.profile.machine.name!r}, the profiled machine; times of other kinds are "
            "modelled"
        )


def machine(given: Given) -> Machine:
    """Return the machine of the profile; else this machine."""
    if given.profile is not None:
        return given.profile.machine
    from dltune.system import topology

    return topology.local()


def digests(given: Given, cluster: Topology) -> tuple[str, str]:
    return digest(given.graph), digest(cluster)


def again(
    section: Parallelism, documents: Iterable[msgspec.Struct]
) -> tuple[Given, Topology] | None:
    """Return the inputs that a section was planned from, made by its names or found among these
    documents. None when they are not there, or have changed."""
    every = tuple(documents)
    graph, cluster = section.digests
    networks = (one for one in _networks(section, every) if digest(one.graph) == graph)
    clusters = (one for one in _clusters(section, every) if digest(one) == cluster)
    given, found = next(networks, None), next(clusters, None)
    return (given, found) if given and found else None


def _networks(section: Parallelism, documents: Iterable[msgspec.Struct]) -> Iterator[Given]:
    yield from (Given(one) for one in documents if isinstance(one, Operators))
    for one in documents:
        if isinstance(one, Profile):
            with contextlib.suppress(UsageError):  # of another job, which has no operators
                yield profiled(one)
    if section.batch is not None:
        with contextlib.suppress(UsageError):  # of another dltune, whose networks are others
            yield _published(section.network, section.batch)


def _clusters(section: Parallelism, documents: Iterable[msgspec.Struct]) -> Iterator[Topology]:
    yield from (one for one in documents if isinstance(one, Topology))
    with contextlib.suppress(UsageError):  # a document's name
        yield devices(section.topology)


def _published(name: str, batch: int | None) -> Given:
    from dltune.systems.parallelism.networks.operators import NETWORKS

    known = {one.lower(): one for one in NETWORKS}
    if name.lower() not in known:
        raise UsageError(
            f"{name!r} is neither a file nor a published network",
            remedy="pass a profile, an operators document, or one of " + ", ".join(NETWORKS),
        )
    own = known[name.lower()]
    graph = NETWORKS[own]() if batch is None else NETWORKS[own](batch)
    return Given(graph, name=own, batch=_samples(graph) if batch is None else batch)


def _samples(graph: Operators) -> int:
    """The size of its dimension of samples."""
    return max(d.size for one in graph.operators for d in one.dimensions if d.kind == "sample")
