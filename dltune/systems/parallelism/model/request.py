"""The properties that decide the time of an operator's part. Standard library only: it is also
imported where operators are timed, in a Python that can be without the rest that dltune needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """`type`: as in an operators document, such as "conv 3x3/2 bias relu": the operation, the
    window and its stride, and the functions of each number then. `inputs`: shapes of one part's
    inputs, the samples first and the channels last; `output`: of its output. `data`: it reads the
    inputs of the step, of which no gradients are taken."""

    type: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    data: bool = False

    def __str__(self) -> str:
        return f"{self.type!r} from {' and '.join(map(str, self.inputs))} to {self.output}"
