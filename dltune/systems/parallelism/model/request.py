"""What decides how long an operator's part takes. Standard library only: it is also imported where
operators are timed, in a Python that may have nothing else that dltune needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """`type`: as in an operators document, such as "conv 3x3/2 bias relu": what is computed, the
    window and its stride, and what is done with each number then. `inputs`: shapes of what one part
    reads, the samples first and the channels last; `output`: of what it gives out. `data`: it reads
    what the step is given, of which no gradients are taken."""

    type: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    data: bool = False

    def __str__(self) -> str:
        return f"{self.type!r} from {' and '.join(map(str, self.inputs))} to {self.output}"
