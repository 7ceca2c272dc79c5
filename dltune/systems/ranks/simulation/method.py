"""How Horovod's background threads agree: the original, and the methods of thesis section 6.3."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.systems.ranks.simulation.job import Job


@dataclass(frozen=True)
class Method:
    """`agree_every`: GS (section 6.3.1), all ranks take the least sleep, every so many cycles;
    every cycle was best there.
    `between_tests`: NBCS (6.3.2), seconds slept between two tests of the caches' allreduce.
    `reserved`: SCP (6.3.3), cores of a pool that only background threads may use, and they only
    those. With bins it is the SCP-TOPO of section 6.4.1.
    `input_cores`: SCP, the same for input pipelines; 0: they share the others with computing.
    `bins`: tensors that travel together once the last is there; in this order where `synchronized`
    is false. `synchronized`: false is TOPO as the thesis has it (6.3.4), one wake-up for each bin
    and no synchronization of caches; bins with it are those of stock Horovod's groups.
    `rest`: seconds at most that a background thread whose rank has nothing to send goes on sleeping
    when its cycle is over; a tensor ends that. No method of the thesis.
    """

    name: str
    agree_every: int | None = None
    between_tests: float | None = None
    reserved: float = 0.0
    input_cores: float = 0.0
    bins: tuple[tuple[int, ...], ...] | None = None
    synchronized: bool = True
    rest: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot be."""
        if self.agree_every is not None and self.agree_every < 1:
            raise ValueError("ranks agree every cycle at most")
        if self.between_tests is not None and self.between_tests <= 0:
            raise ValueError("a sleep between tests takes time")
        if self.reserved < 0 or self.input_cores < 0:
            raise ValueError("reserved cores are not negative")
        if self.rest is not None and self.rest <= 0:
            raise ValueError("a rest takes time")
        if not self.synchronized and self.bins is None:
            raise ValueError("without synchronization there are bins")


ORIGINAL = Method("original")


def fused(job: Job) -> tuple[tuple[int, ...], ...]:
    """Bins up to the fusion threshold of tensors that become ready together: what TOPO may fuse
    without making a tensor wait for a later one."""
    bins: list[list[int]] = []
    for phase in job.phases:
        current: list[int] = []
        size = 0
        for tensor in phase.tensors:
            if not current or size + job.tensors[tensor] > job.fusion_threshold:
                bins.append(current := [])
                size = 0
            current.append(tensor)
            size += job.tensors[tensor]
    return tuple(map(tuple, bins))
