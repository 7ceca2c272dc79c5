"""Inside the job's Python: the part of a step that PyTorch's compiler keeps for the backward pass.

When it divides a graph into both passes, it can be asked for the results of other budgets.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

BUDGETS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)  # of what it would keep
LONGEST = 60.0  # seconds of asking for them, in a process
PARTITIONERS = "torch._functorch.partitioners"
_CHOOSE = "choose_saved_values_set"


def without_cache() -> None:
    """Have no divided graph taken from PyTorch's cache, because dltune does not see its division.
    This is a variable, because PyTorch has its configuration by thread."""
    os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"


def runs(roots: Sequence[Any]) -> list[int]:
    """Return the runs of each compiled graph in a forward pass that ends in these roots, in the
    order of their first runs."""
    found: dict[type, list[int]] = {}
    waiting = [getattr(root, "grad_fn", getattr(root, "node", None)) for root in roots]
    seen = {None, *waiting}
    while waiting:
        if node := waiting.pop():
            if type(node).__name__ == "CompiledFunctionBackward":
                found.setdefault(type(node), []).append(node._sequence_nr())
            following = {one for one, _ in node.next_functions} - seen
            seen |= following
            waiting += following
    return [len(found[one]) for one in sorted(found, key=lambda one: min(found[one]))]


class Ladders:
    """Rungs of each graph that is differentiated. `failed`: why some are missing."""

    def __init__(self) -> None:
        self._graphs: list[dict[str, Any]] = []
        self._left = LONGEST
        self.failed = ""

    def graphs(self, runs: Sequence[int]) -> list[dict[str, Any]]:
        """Return the graphs of a step, which runs each as often as `runs` says, in the form of
        `schemas/compiled.py`."""
        if len(runs) != len(self._graphs) and not self.failed:
            self.failed = (
                f"a step runs only {len(runs)} of {len(self._graphs)} compiled graphs: the others "
                "were compiled for other shapes or do not belong to the step"
            )
        return [{"runs": count, **graph} for count, graph in zip(runs, self._graphs, strict=False)]

    def watch(self, partitioners: ModuleType) -> None:
        def choose(plain: Callable[..., Any], graph: Any, info: Any, own: float) -> Any:
            saved = plain(graph, info, memory_budget=own)
            began = time.monotonic()
            try:
                self._graphs.append(self._ladder(partitioners, plain, graph, info, own, saved))
            except Exception as error:  # the job's graph is divided all the same
                self.failed = f"{type(error).__name__}: {error}"
            self._left -= time.monotonic() - began
            return saved

        self.failed = replace_choice(partitioners, choose)

    def _ladder(
        self,
        partitioners: Any,
        plain: Callable[..., Any],
        graph: Any,
        info: Any,
        own: float,
        saved: Any,
    ) -> dict[str, Any]:
        until = time.monotonic() + self._left
        division = Division(partitioners, graph, info)
        rungs = [(own, *division.under(saved))]
        with keeping_drawn(graph):
            for budget in BUDGETS:
                if budget >= own or time.monotonic() > until:
                    continue
                kept = plain(graph, info, memory_budget=budget)
                rung = division.under(kept)
                if rung != rungs[-1][1:] and not division.draws_again(kept):
                    rungs.append((budget, *rung))
        return {"work": division.work(division.nodes), "rungs": rungs}


def replace_choice(partitioners: ModuleType, choose: Callable[..., Any]) -> str:
    """Have `choose` called in place of the function that decides which values are kept, with that
    function, a graph, the facts about it, and the script's budget. Return why it cannot be called;
    empty: it is."""
    plain = getattr(partitioners, _CHOOSE, None)
    if plain is None:
        return "the compiler of this version of PyTorch does not report which values it keeps"

    @functools.wraps(plain)
    def chosen(graph: Any, info: Any, memory_budget: float = 1) -> Any:
        return choose(plain, graph, info, memory_budget)

    setattr(partitioners, _CHOOSE, chosen)
    return ""


@contextlib.contextmanager
def keeping_drawn(graph: Any) -> Iterator[None]:
    """Have the compiler keep results of random numbers, whatever its budget."""
    policy = importlib.import_module("torch.utils.checkpoint").CheckpointPolicy.MUST_SAVE
    drawn = [node for node in graph.nodes if _draws(node)]
    # of a node with several output tensors, these items can be kept
    drawn += [one for node in drawn for one in node.users if one.target is operator.getitem]
    before = [node.meta.get("recompute") for node in drawn]
    for node in drawn:
        node.meta["recompute"] = policy
    try:
        yield
    finally:
        for node, own in zip(drawn, before, strict=True):
            if own is None:
                del node.meta["recompute"]
            else:
                node.meta["recompute"] = own


def _draws(node: Any) -> bool:
    """Return True if its second run can give other results than its first: it draws random numbers,
    or is not one of PyTorch's operators, so that this is unknown. PyTorch gives the same numbers to
    nodes that the script itself has computed again (`torch.utils.checkpoint`)."""
    torch: Any = importlib.import_module("torch")
    policies = importlib.import_module("torch.utils.checkpoint").CheckpointPolicy
    if node.meta.get("recompute") in (policies.MUST_RECOMPUTE, policies.PREFER_RECOMPUTE):
        return False
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target.namespace not in ("aten", "prims"):
        return True
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":  # attention can be without
            given = (
                node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            )
            return bool(given)
    return True


class Division:
    """A graph of both passes, and its division when some of its values are kept."""

    def __init__(self, partitioners: Any, graph: Any, info: Any) -> None:
        self._types = partitioners.get_default_op_list()
        self._flops: dict[Any, Callable[..., Any]] = importlib.import_module(
            "torch.utils.flop_counter"
        ).flop_registry
        self._given = {node for node in graph.nodes if node.op == "placeholder"}
        self._wanted = {
            value for node in graph.nodes if node.op == "output" for value in node.all_input_nodes
        }
        self.nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        self._outputs = {node for node in self._wanted if info.is_required_fw(node)}

    def under(self, saved: Iterable[Any]) -> tuple[int, int, int, int, float]:
        """Return the fields of a rung, without its budget."""
        kept, forward, backward = self._passes(saved)
        again = set(forward) & set(backward)
        levels = self._levels(forward, backward, kept)
        bytes = {where: size for node in kept for where, size in _storages(node)}
        return (
            sum(bytes.values()),
            max(levels[: len(forward)], default=0),
            max(levels[len(forward) :], default=0),
            len(again),
            self.work(again),
        )

    def draws_again(self, saved: Iterable[Any]) -> bool:
        _, forward, backward = self._passes(saved)
        return any(map(_draws, set(forward) & set(backward)))

    def _passes(self, saved: Iterable[Any]) -> tuple[set[Any], list[Any], list[Any]]:
        """Return the kept values, and the nodes of either pass: nodes of the second once all their
        inputs are computed, and nodes that run again just before they are read."""
        kept = set(saved) - self._given
        first = self._read_for(self._outputs | kept, self._given)
        done = self._given | kept
        second = self._read_for(self._wanted - self._outputs, done)
        forward = [node for node in self.nodes if node in first]
        backward = []
        for last in self.nodes:
            waiting = [last] if last in second and last not in first else []
            while waiting:
                node = waiting[-1]
                if node in done:
                    waiting.pop()
                elif missing := [one for one in node.all_input_nodes if one not in done]:
                    waiting += reversed(missing)
                else:
                    done.add(node)
                    backward.append(waiting.pop())
        return kept, forward, backward

    def _read_for(self, wanted: set[Any], there: set[Any]) -> set[Any]:
        """Return these nodes and all that they are computed from, except nodes in `there`."""
        found: set[Any] = set()
        waiting = list(wanted)
        while waiting:
            if (node := waiting.pop()) not in found and node not in there:
                found.add(node)
                waiting += node.all_input_nodes
        return found

    def work(self, nodes: Iterable[Any]) -> float:
        return sum(map(self._work, nodes))

    def _work(self, node: Any) -> float:
        value = node.meta.get("val")
        count = self._flops.get(getattr(node.target, "overloadpacket", None))
        if count is None:
            if self._is_view(node):
                return 0.0
            return float(sum(math.prod(map(_number, one.shape)) for one in _tensors(value)))
        args, kwargs = _values((node.args, node.kwargs))
        return float(_number(count(*args, **kwargs, out_val=value)))

    def _levels(self, forward: list[Any], backward: list[Any], kept: set[Any]) -> list[int]:
        """Return the bytes of values that the passes themselves make, while each node runs."""
        given = {where for node in self._given for where, _ in _storages(node)}
        stays = {where for node in kept for where, _ in _storages(node)}
        born: dict[Any, int] = {}
        last: dict[Any, int] = {}
        sizes: dict[Any, int] = {}

        def values(node: Any, again: bool) -> Iterator[tuple[Any, int]]:
            """Yield a node's values: its second run makes other values, unless they are kept."""
            for where, size in _storages(node):
                if where not in given:
                    yield (where, again and where not in stays), size

        runs = [(node, False) for node in forward] + [(node, True) for node in backward]
        for at, (node, again) in enumerate(runs):
            if self._is_stored(node, kept):
                for value, size in values(node, again):
                    born.setdefault(value, at)
                    sizes[value] = size
                    last[value] = at
            for read in node.all_input_nodes:
                for value, _ in values(read, again):
                    if value in born:
                        last[value] = at
        for node in self._wanted:
            for again in (False, True):
                for value, _ in values(node, again):
                    if value in born:
                        last[value] = len(runs) - 1
        change = [0] * (len(runs) + 1)
        for value, at in born.items():
            change[at] += sizes[value]
            change[last[value] + 1] -= sizes[value]
        return list(itertools.accumulate(change))[:-1]

    def _is_stored(self, node: Any, kept: set[Any]) -> bool:
        """Return True if its output takes memory: a loop that computes it can also contain its
        readers."""
        if node in kept or node in self._wanted or not self._is_looped(node):
            return True
        return any(
            not self._is_looped(reader) and not self._is_view(reader) and reader.op != "output"
            for reader in node.users
        )

    def _is_looped(self, node: Any) -> bool:
        return getattr(node.target, "overloadpacket", node.target) in self._types.fusible_ops

    def _is_view(self, node: Any) -> bool:
        return getattr(node.target, "overloadpacket", node.target) in self._types.view_ops


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _storages(node: Any) -> Iterator[tuple[int, int]]:
    """Yield the storages of its outputs, and their bytes."""
    for tensor in _tensors(node.meta.get("val")):
        storage = tensor.untyped_storage()
        yield storage._cdata, _number(storage.nbytes())


def _number(value: Any) -> int:
    """Return the present value of a size that can change in the next step: to ask for it otherwise
    would make the compiler treat it as fixed."""
    return int(value.node.hint if hasattr(value, "node") else value)


def _values(argument: Any) -> Any:
    """Return the argument with nodes replaced by their values."""
    if hasattr(argument, "meta"):
        return argument.meta.get("val")
    if isinstance(argument, list | tuple):
        return type(argument)(map(_values, argument))
    if isinstance(argument, dict):
        return {name: _values(one) for name, one in argument.items()}
    return argument
