"""The readers and inputs in a profiled step of training: keys, shapes and each node's
dependencies."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dltune.analysis.keys import Key, family, parse
from dltune.base.errors import UsageError
from dltune.schemas.profile import Node, Op, Step
from dltune.simulate import step_graph
from dltune.simulate.step_graph import topological

Tensor = tuple[int, int]  # a node, and which of its outputs
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StepView:
    """`order`: the nodes, each after those that it reads and waits for."""

    step: Step
    ops: Sequence[Op]
    order: Sequence[int]

    @classmethod
    def of(cls, step: Step, ops: Sequence[Op]) -> StepView:
        """Return the view. Raises UsageError for a step with a loop in it, whose rounds are not
        separate ops."""
        for node in step.nodes:
            if node.type in step_graph.BACK:
                raise UsageError(
                    f"step {step.name or step.signature} contains the loop {node.name!r}, "
                    "whose iterations cannot be divided over devices",
                    remedy="profile the job without the loop: in Keras, use unroll=True in "
                    "recurrent layers and steps_per_execution=1",
                )
        return cls(step, ops, topological(step_graph.acyclic(step)))

    @property
    def title(self) -> str:
        return self.step.name or self.step.signature

    @property
    def nodes(self) -> Sequence[Node]:
        return self.step.nodes

    @functools.cached_property
    def keys(self) -> Sequence[Key | None]:
        """Per node; None for those that never ran, or whose inputs' shapes are not known."""
        by_op = [parse(op) for op in self.ops]
        return [None if node.op is None else by_op[node.op] for node in self.nodes]

    @functools.cached_property
    def families(self) -> Sequence[str]:
        return [family(node.type) for node in self.nodes]

    def reads(self, node: int) -> list[Tensor]:
        found = self.nodes[node]
        return list(zip(found.inputs, found.slots or (0,) * len(found.inputs), strict=True))

    @functools.cached_property
    def shapes(self) -> dict[Tensor, Shape]:
        """Return shapes, from the keys of the nodes that read them."""
        found: dict[Tensor, Shape] = {}
        for node, key in enumerate(self.keys):
            reads = self.reads(node)
            if key is not None and len(key.inputs) == len(reads):
                found |= {t: one.shape for t, one in zip(reads, key.inputs, strict=True)}
        return found

    @functools.cached_property
    def needs(self) -> Sequence[Sequence[int]]:
        """Per node those whose results it needs, each once: by its inputs, or because it takes a
        variable that they have changed."""
        found = []
        for node in self.nodes:
            taken = self.handles.keys() & set(node.inputs)
            changed = [c for c in node.control if taken & set(self.nodes[c].inputs)]
            found.append([*dict.fromkeys((*node.inputs, *changed))])
        return found

    @functools.cached_property
    def readers(self) -> Sequence[Sequence[int]]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for node, needed in enumerate(self.needs):
            for before in needed:
                found[before].append(node)
        return found

    def downstream(
        self, start: Iterable[int], through: Callable[[int], bool] = lambda _: True
    ) -> set[int]:
        """`start`, and all that is computed from it, as far as `through` lets it pass."""
        found = set(start)
        waiting = list(found)
        while waiting:
            for after in self.readers[waiting.pop()]:
                if after not in found and through(after):
                    found.add(after)
                    waiting.append(after)
        return found

    def upstream(self, start: Iterable[int]) -> set[int]:
        """`start`, and all that it is computed from."""
        found = set(start)
        waiting = list(found)
        while waiting:
            for before in self.needs[waiting.pop()]:
                if before not in found:
                    found.add(before)
                    waiting.append(before)
        return found

    @functools.cached_property
    def handles(self) -> dict[int, list[int]]:
        """Return, of each variable, known by the node that names it, the nodes that take it
        itself."""
        found: dict[int, list[int]] = defaultdict(list)
        for node in range(len(self.nodes)):
            for before, slot in self.reads(node):
                outputs = self.nodes[before].outputs
                dtype = outputs[slot].dtype if slot < len(outputs) else ""
                if not self.nodes[before].inputs and (
                    dtype == "resource" or self.families[before] in ("Variable", "VarHandleOp")
                ):
                    found[before].append(node)
        return dict(found)
