"""The section on Horovod and its outcome in each rank, for people and for launchers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from dltune.base.errors import UsageError
from dltune.base.formatting import Table, columns, counted
from dltune.job import protocol
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile
from dltune.system import kernel_files
from dltune.systems.ranks.allreduce.measurements import Call
from dltune.systems.ranks.allreduce.section import AllreducePlan, pieces
from dltune.systems.ranks.horovod.preload.interposer import REST, Counts
from dltune.views import Headline, Section, View


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


def shown(section: AllreducePlan) -> View:
    """Return the predicted step of each method, and the decisions."""
    title = f"{section.ranks} ranks over {section.controller}"
    methods = Section("methods", f"Horovod: {title}", [predictions(section), *section.reasons])
    bins = sum(len(order.bins) for order in section.orders or ())
    decided = [f"gradients in {counted(bins, 'bin')}"] if bins else []
    decided += ["cores for each rank and its background thread"] if section.cores else []
    decided += ["a background thread that sleeps while it waits"] if section.sleeps else []
    sentence = f"Planned for {title}: {', '.join(decided) or 'Horovod unchanged'}."
    return View([methods], [Headline(1, sentence)])


def predictions(section: AllreducePlan, planned: str = "") -> Table:
    """Return a row per method. `planned`: the method of the section; if it is unknown, the fastest
    methods come first after the job without a plan."""
    original = section.predictions[0].seconds if section.predictions else 0.0
    methods = list(section.predictions[1:])
    if not planned:
        methods.sort(key=lambda prediction: prediction.seconds)
    rows = [
        (
            found.method,
            f"{found.seconds * 1e3:.1f}",
            f"{original / found.seconds:.2f}" if found.seconds else "",
            f"{found.background:.1%}",
            "planned" if found.method == planned else "",
        )
        for found in (*section.predictions[:1], *methods)
    ]
    heads = ("method", ">step ms", ">speed-up", ">background CPU, of a core", "")
    return Table("predicted step of the job by method", columns(*heads), rows)


def bins(section: AllreducePlan, profile: Profile, calls: Sequence[Call]) -> list[str]:
    """Each bin's tensors by name, and when the profiled step had them."""
    lines = []
    for order in section.orders or ():
        call = next(c for c in calls if tuple(g.shape for g in c.gradients) == order.shapes)
        nodes = profile.steps[call.step].nodes
        lines.append(
            f"{call.scope}: {len(call.gradients)} gradients in {counted(len(order.bins), 'bin')}"
        )
        for number, bin_ in enumerate(order.bins):
            part = bin_.elements and f", elements {bin_.elements[0]} to {bin_.elements[1] - 1} of"
            lines.append(f"  bin {number}: {bin_.bytes} bytes{part or ''}")
            for place in bin_.tensors:
                gradient = call.gradients[place]
                start = nodes[gradient.node].start
                there = "" if start is None else f", ready after {start * 1e3:.1f} ms"
                shape = ",".join(map(str, gradient.shape))
                lines.append(f"    {place}: {gradient.dtype}[{shape}] {gradient.name}{there}")
    return lines


def intent(section: AllreducePlan, machine: Machine) -> list[str]:
    """Return the parts to be enforced, a sentence each."""
    told = [f"for {section.ranks} ranks over {section.controller}, {section.local} on this node"]
    for rank, cores in enumerate(section.cores or ()):
        parts = [
            f"{what} {cpus(machine, getattr(cores, part))}"
            for part, what in (
                ("background", "background thread on CPU"),
                ("helpers", "its helpers on"),
                ("compute", "ops on"),
                ("input", "tf.data on"),
            )
        ]
        told.append(f"local rank {rank}: {', '.join(parts)}")
    if section.threads:
        told.append(
            f"intra-op {section.threads.intra}, inter-op {section.threads.inter} threads in a rank"
        )
    told += [
        f"{len(order.shapes)} gradients are reduced in {counted(len(order.bins), 'bin')} of "
        f"{', '.join(str(bin_.bytes) for bin_ in order.bins)} bytes"
        + "".join(f", gradient {g} in {n} pieces" for g, n in pieces(order.bins).items())
        for order in section.orders or ()
    ]
    told += [f"{name}={value}" for name, value in settings(section).items()]
    told += sleeps(section).values()
    return told


def sentences(outcome: RankOutcome) -> Iterator[str]:
    """Yield sentences on the outcome of the section in one rank."""
    yield from (f"rank {outcome.rank}: {sentence}" for sentence in outcome.enforced)
    yield from (f"rank {outcome.rank}: not enforced: {sentence}" for sentence in outcome.left)


MIB = 1 << 20


def export(kind: str, plan: AllreducePlan, machine: Machine, hosts: Sequence[str] = ()) -> str:
    """The plan in one of the planner's formats. `hosts`: the nodes, in the launcher's order.

    Raises UsageError when the plan has nothing for this format, KeyError for another format.

    The formats are files that launchers read: Horovod's configuration file, a rankfile, exports.
    They leave out the parts that need dltune in the job (bins, sleeps, cores of single threads).
    Each file says so in its first lines.
    """
    if kind == "rankfile":
        return _rankfile(plan, machine, hosts)
    return {"horovodrun-yaml": _yaml, "env": _env}[kind](plan, machine)


def _yaml(plan: AllreducePlan, machine: Machine) -> str:
    lines = [*_left_out(plan), f"controller: {plan.controller}"]
    if plan.knobs:
        lines += [
            "params:",
            f"  fusion_threshold_mb: {-(-plan.knobs.fusion_threshold // MIB)}",
            f"  cycle_time_ms: {plan.knobs.cycle_time * 1e3:g}",
            f"  cache_capacity: {plan.knobs.cache_capacity}",
        ]
    if plan.cores and plan.local == 1:  # the file takes one number, for all local ranks
        lines += ["library_options:", f"  thread_affinity: {_background(plan, machine)}"]
    return "\n".join(lines) + "\n"


def _rankfile(plan: AllreducePlan, machine: Machine, hosts: Sequence[str]) -> str:
    """For `mpirun --rankfile`: all cores of each rank. Slots are the system's CPU numbers."""
    if not plan.cores:
        raise UsageError(
            "--emit rankfile: a rankfile assigns cores to ranks, and this plan assigns none",
            remedy="add core-partition to --methods",
        )
    nodes = -(-plan.ranks // plan.local)
    if len(hosts) < nodes:
        # relative names need a hostfile or an allocation, which several nodes have anyway
        hosts = ["localhost"] if nodes == 1 else [f"+n{node}" for node in range(nodes)]
    lines = [*_left_out(plan), "# use: mpirun --rankfile FILE --mca rmaps_rank_file_physical 1 ..."]
    for rank in range(plan.ranks):
        node, local = divmod(rank, plan.local)
        mine = plan.cores[local]
        cores = {*mine.background, *mine.helpers, *mine.compute, *mine.input}
        lines.append(f"rank {rank}={hosts[node]} slot={cpus(machine, cores)}")
    return "\n".join(lines) + "\n"


def _env(plan: AllreducePlan, machine: Machine) -> str:
    exports = settings(plan)
    if plan.cores:
        exports["HOROVOD_THREAD_AFFINITY"] = _background(plan, machine)
        if plan.controller == "mpi":
            exports["OMPI_MCA_hwloc_base_binding_policy"] = "none"
    if plan.threads:
        exports["TF_NUM_INTRAOP_THREADS"] = str(plan.threads.intra)
        exports["TF_NUM_INTEROP_THREADS"] = str(plan.threads.inter)
        exports["OMP_NUM_THREADS"] = str(plan.threads.intra)
    lines = [*_left_out(plan), *(f"export {name}={value}" for name, value in exports.items())]
    return "\n".join(lines) + "\n"


def _background(plan: AllreducePlan, machine: Machine) -> str:
    """HOROVOD_THREAD_AFFINITY: one CPU for each local rank's background thread."""
    assert plan.cores is not None
    return ",".join(str(machine.cores[rank.background[0]].cpus[0]) for rank in plan.cores)


def _left_out(plan: AllreducePlan) -> list[str]:
    missing = {
        "bins": plan.orders,
        "sleeps": plan.sleeps,
        "cores of single threads": plan.cores,
    }
    names = ", ".join(name for name, there in missing.items() if there)
    return [f"# not included: {names}; dltune run --plan applies them"] if names else []
