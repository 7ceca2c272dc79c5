"""The outcome of a plan's section on Horovod in one rank, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from dltune.base.formatting import counted
from dltune.job import protocol
from dltune.schemas.machine import Machine
from dltune.system import kernel_files
from dltune.systems.ranks.allreduce.section import AllreducePlan
from dltune.systems.ranks.horovod.preload.counts import Counts
from dltune.systems.ranks.horovod.preload.interposer import REST


class RankOutcome(msgspec.Struct, frozen=True):
    """`enforced`: the parts of the plan in effect; `left`: the parts that are not, and why."""

    rank: int
    pid: int
    enforced: tuple[str, ...]
    left: tuple[str, ...]


@dataclass
class Heard:
    """The messages of one rank. `moved`: threads of tf.data that were put onto their cores;
    `unmoved`: why none could be. `counts`: activity of the methods that sleep."""

    init: protocol.Horovod
    reductions: list[protocol.Reduction] = field(default_factory=list)
    device: protocol.Device | None = None
    moved: int = 0
    unmoved: str | None = None
    counts: Counts | None = None


def outcome(
    section: AllreducePlan, machine: Machine, dropped: Sequence[str], heard: Heard
) -> RankOutcome:
    """Return the outcome. `dropped`: parts left out of the plan for all ranks, in sentences."""
    enforced: list[str] = []
    left = list(dropped)
    for good, text in (
        *_cores(section, machine, heard),
        *_threads(section, heard),
        *_bins(section, heard),
        *_settings(section, heard),
        *_sleeps(section, heard),
    ):
        (enforced if good else left).append(text)
    return RankOutcome(heard.init.rank, heard.init.pid, tuple(enforced), tuple(left))


def settings(section: AllreducePlan) -> dict[str, str]:
    """Horovod's and Open MPI's own, as their environment variables."""
    chosen: dict[str, str] = {}
    if knobs := section.knobs:
        # milliseconds
        chosen["HOROVOD_CYCLE_TIME"] = f"{knobs.cycle_time * 1e3:g}"
        chosen["HOROVOD_FUSION_THRESHOLD"] = str(knobs.fusion_threshold)
        chosen["HOROVOD_CACHE_CAPACITY"] = str(knobs.cache_capacity)
    if section.yield_when_idle:
        chosen["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return chosen


_Told = Iterator[tuple[bool, str]]


_NO_REST = (
    "it never happened; possible causes: Horovod writes a timeline, tensor names change, or "
    "training ends within seconds"
)


def _cores(section: AllreducePlan, machine: Machine, heard: Heard) -> _Told:
    init = heard.init
    node = {cpu for core in machine.cores for cpu in core.cpus}
    bound = node - set(init.bound) and f"CPU {kernel_files.format_cpulist(frozenset(init.bound))}"
    if section.cores is None:
        if bound:
            yield False, f"cores: the plan assigns none, this rank stays bound to {bound}"
        return
    mine = section.cores[init.local_rank]
    if not init.threads:
        yield False, "cores: hvd.init() started no thread: there is no background thread to place"
    else:
        background, helpers = cpus(machine, mine.background), cpus(machine, mine.helpers)
        yield (
            True,
            f"background thread on CPU {background}"
            + (f" in time slices of {init.slice * 1e3:g} ms" if init.slice else "")
            + (f", {len(init.threads) - 1} helpers on {helpers}" if init.threads[1:] else "")
            + f", ops on {cpus(machine, mine.compute)}"
            + (f"; the launcher had bound the rank to {bound}" if bound else ""),
        )
    if set(mine.input) == set(mine.compute):
        return
    where = cpus(machine, mine.input)
    if heard.unmoved:
        yield False, f"tf.data on CPU {where}: {heard.unmoved}"
    elif heard.moved:
        yield True, f"{heard.moved} threads of tf.data on CPU {where}"
    else:
        yield False, f"tf.data on CPU {where}: no thread of tf.data was found"


def _threads(section: AllreducePlan, heard: Heard) -> _Told:
    if section.threads is None:
        return
    wanted = f"intra-op {section.threads.intra}, inter-op {section.threads.inter}"
    if heard.device is None:
        yield False, f"{wanted}: TensorFlow created no CPU device with dltune's plugin"
        return
    asked = (heard.device.asked_intra, heard.device.asked_inter)
    other = any(asked) and asked != (section.threads.intra, section.threads.inter)
    yield True, wanted + (f" (the script asked for {asked[0]} and {asked[1]})" if other else "")


def _bins(section: AllreducePlan, heard: Heard) -> _Told:
    if not section.orders:
        return
    if not heard.reductions:
        yield False, "bins: the job made no call that reduces a list of gradients"
    told = dict.fromkeys(  # a function that is traced again reports the same again
        (len(call.shapes), call.bins, call.why) for call in heard.reductions
    )
    for count, bins, why in told:
        if bins is None:
            yield False, f"bins of a call with {count} gradients: {why}"
        else:
            yield True, f"{count} gradients are reduced in {counted(bins, 'bin')}"


def _settings(section: AllreducePlan, heard: Heard) -> _Told:
    changed = heard.init.overridden
    for name, value in settings(section).items():
        yield True, f"{name}={value}" + (f" (was {changed[name]})" if name in changed else "")
    if "HOROVOD_THREAD_AFFINITY" in changed:
        was = changed["HOROVOD_THREAD_AFFINITY"]
        yield True, f"HOROVOD_THREAD_AFFINITY (was {was}) is replaced by the plan's cores"


def _sleeps(section: AllreducePlan, heard: Heard) -> _Told:
    for method, sentence in sleeps(section).items():
        if method == "rest" and REST in heard.init.overridden:
            why = "the job can have process sets, whose members would wait for it"
            yield False, f"{sentence}: {why}"
        elif heard.counts is None:
            yield False, f"{sentence}: the preloaded library reported no counts"
        else:
            times, words, instead = _counted(method, heard.counts)
            yield bool(times), f"{sentence}; {words}" if times else f"{sentence}: {instead}"


def _counted(method: str, counts: Counts) -> tuple[int, str, str]:
    """Return how often a method did something, in words, and the sentence for a method that never
    did."""
    if method == "non-blocking":
        words = f"{counts.sleeps} sleeps in {counts.collectives} collectives"
        return counts.collectives, words, "no collective ran"
    if method == "global-sleep":
        words = f"{counts.agreements} agreements, {counts.shortened} sleeps shortened"
        return counts.agreements, words, "it never happened"
    return counts.rests, f"{counts.rests} rests in {counts.cycles} cycles", _NO_REST


def sleeps(section: AllreducePlan) -> dict[str, str]:
    """Return a sentence by method on the sleeps that replace spinning of background threads."""
    found: dict[str, str] = {}
    if (planned := section.sleeps) is None:
        return found
    if planned.between_tests is not None:
        found["non-blocking"] = (
            f"non-blocking: sleep {planned.between_tests * 1e6:g} us between tests of MPI"
        )
    if planned.agree_every is not None:
        every = "cycle" if planned.agree_every == 1 else f"{planned.agree_every} cycles"
        found["global-sleep"] = f"global-sleep: ranks agree on the shortest sleep every {every}"
    if planned.rest is not None:
        found["rest"] = (
            f"rest: sleep up to {planned.rest * 1e3:g} ms while there is nothing to send"
        )
    return found


def cpus(machine: Machine, cores: Collection[int]) -> str:
    return kernel_files.format_cpulist(
        frozenset(cpu for core in cores for cpu in machine.cores[core].cpus)
    )
