"""Settings that TensorFlow itself knows: one intra-op and one inter-op count for all ops."""

from __future__ import annotations

from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.schemas.profile import Settings


def default(machine: Machine) -> Uniform:
    """TensorFlow 2.x without settings: as many of both as the process may use CPUs."""
    cpus = sum(len(core.cpus) for core in machine.cores)
    return Uniform(cpus, cpus)


def recommended(machine: Machine) -> Uniform:
    """TensorFlow's performance guide: intra the physical cores, inter the sockets."""
    return Uniform(len(machine.cores), machine.sockets)


def own(settings: Settings, machine: Machine) -> Uniform:
    """The job's, on no more threads than there are cores."""
    cores = len(machine.cores)
    return Uniform(min(settings.intra, cores), min(settings.inter, cores))


def grid(machine: Machine, intra: int | None = None) -> list[Uniform]:
    """What a person would try ("manual optimisation", section IV): powers of two and the core
    counts of a tile, a socket and the machine, for intra and for inter. `intra`: that one only.
    """
    cores = len(machine.cores)
    powers = (1 << k for k in range(cores.bit_length()))
    steps = sorted({*powers, cores, max(1, cores // machine.sockets), max(map(len, machine.tiles))})
    return [Uniform(a, b) for a in ([intra] if intra else steps) for b in steps]
