"""Names of a weight and an op for people: the path of its layer.

Keras 3 enters each layer's name scope twice, so that TensorFlow puts a number behind it: `dense_1`
in a variable's path is `dense_1_2` in the graph, and `dense` is `dense_1`. Where all weights are
read in such scopes the numbers go again. A path has the names of the layers around, but not that of
a functional model, whose layers are built before it. Its default name is left out here; a name that
somebody gave it cannot be distinguished from that of a layer, and stays in front.
"""

from __future__ import annotations

import itertools
import re

from dltune.systems.parallelism.model.reading.roles import Roles
from dltune.systems.parallelism.model.reading.step_view import StepView

_NUMBER = re.compile(r"_\d+$")
_FUNCTIONAL = re.compile(r"functional(_\d+)?")
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")
_REWRITTEN = ("ArithmeticOptimizer", "ConstantFolding")


class Names:
    def __init__(self, view: StepView, roles: Roles) -> None:
        self.view = view
        names = [_parts(node.name) for node in view.nodes]
        self._scopes = {
            parts[:n]
            for node, parts in enumerate(names)
            if view.families[node] != "ReadVariableOp" and parts[:1] != ("gradient_tape",)
            for n in range(1, len(parts))
        }
        scopes = {variable: self._scope(variable, roles) for variable in roles.weights}
        unnamed = [part for variable, part in scopes.items() if not self._named(variable)]
        self._keras = all(part and _NUMBER.search(part[0]) for part in unnamed)
        self._paths = {
            variable: "/".join(part if self._named(variable) else self._clean(self._layers(part)))
            for variable, part in scopes.items()
        }

    def layer(self, variable: int) -> str:
        """Return the layer of a weight, as its variable's path has it before its last part."""
        return self._paths[variable]

    def op(self, node: int) -> tuple[str, str]:
        """Return the layer in which it is computed, and its name there."""
        parts = _parts(self.view.nodes[node].name)
        return "/".join(self._clean(parts[:-1])), parts[-1]

    def _named(self, variable: int) -> bool:
        return self.view.nodes[variable].type.startswith(("VarHandle", "Variable"))

    def _scope(self, variable: int, roles: Roles) -> tuple[str, ...]:
        if self._named(variable):
            parts = _parts(self.view.nodes[variable].name)
            return parts[:-1] or parts
        reads = [n for n in roles.weights[variable] if self.view.families[n] == "ReadVariableOp"]
        reads = reads or [n for n in self.view.handles[variable] if n in roles.model]
        reads.sort(key=lambda node: (not self._forward(node, roles), node))
        scope = _parts(self.view.nodes[reads[0]].name)[:-1]
        # the op for which it is read has a scope that contains nothing else
        while len(scope) > 1 and scope not in self._scopes:
            scope = scope[:-1]
        return scope

    def _forward(self, read: int, roles: Roles) -> bool:
        """True if the model's ops take the value read there, and not the optimiser's alone."""
        behind = self.view.downstream([read], lambda node: node not in roles.informed)
        taken = {after for node in behind for after in self.view.readers[node]}
        return bool(taken & roles.informed & roles.model)

    def _layers(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the parts without the names that an op gives its inner ops."""
        numbered = itertools.takewhile(_NUMBER.search, parts)
        return tuple(numbered) if self._keras else parts

    def _clean(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        if self._keras:
            parts = tuple(_NUMBER.sub("", part) for part in parts)
            if parts and _FUNCTIONAL.fullmatch(parts[0]):
                parts = parts[1:]
        return parts


def _parts(name: str) -> tuple[str, ...]:
    parts = [part for part in name.split("/") if part not in _CALLS]
    for rewritten in _REWRITTEN:
        if rewritten in parts:
            at = parts.index(rewritten)
            parts = parts[at + 1 :] if at == 0 else [*parts[:at], parts[-1]]
    return tuple(parts) or (name,)
