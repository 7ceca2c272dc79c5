"""Inside the job's Python: steps give up results as planned, and the compiler keeps as much as
planned."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

# of dltune's core, except _dltune_torch_recomputation
from _dltune_torch import at_each_step
from _dltune_torch_calls import note_hooks
from _dltune_torch_compiled import (
    BUDGETS,
    PARTITIONERS,
    Division,
    keeping_drawn,
    replace_choice,
    without_cache,
)
from _dltune_torch_recomputation import recomputing
from _dltune_torch_steps import WARM, Allocator, Around, Tell, obstacle, step_hook, teller

_GROWN = 1.001  # times: a peak is reported again where it is so much higher


def start(
    orders: Mapping[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Return modules of the job and the functions to call after their import. `orders`: for
    `recomputing`, or for the compiler (`budget`)."""
    tell = teller(interpreter)
    if "budget" in orders:
        without_cache()
        budget = _Budget(tell)

        def count(torch: ModuleType) -> None:
            ends = step_hook(torch, lambda: budget.step_ends(torch), budget.leave)
            at_each_step(torch, after=ends)

        def divide(partitioners: ModuleType) -> None:
            _divide(partitioners, orders["budget"], budget.did, budget.leave)

        return [("torch", count), (PARTITIONERS, divide)], {}

    def give_up(torch: ModuleType) -> None:
        note_hooks(torch)
        enforced = _Enforced(torch, orders, tell)
        # a closure computes gradients within the step
        leaves = step_hook(torch, enforced.step_begins, enforced.fail, closures=False)
        at_each_step(torch, before=leaves, after=step_hook(torch, enforced, enforced.fail))

    return [("torch", give_up)], {}


def _divide(
    partitioners: ModuleType, planned: float, did: Callable[[], None], left: Callable[[str], None]
) -> None:
    """Have the compiler keep the `planned` part, but random numbers whole: by itself it has others
    drawn again, with which gradients are wrong (seen in 2.13). Where it still would, it keeps more,
    by the ladder. `did`: a graph was divided so; `left`: one was not, and why."""

    def choose(plain: Callable[..., Any], graph: Any, info: Any, own: float) -> Any:
        try:
            division = Division(partitioners, graph, info)
            for budget in reversed(BUDGETS):
                if planned <= budget < own:
                    with keeping_drawn(graph):
                        saved = plain(graph, info, memory_budget=budget)
                    if not division.draws_again(saved):
                        did()
                        return saved
            did()
        except Exception as error:  # as it is, it can be compiled
            left(f"dltune cannot analyse a graph: {type(error).__name__}: {error}")
        return plain(graph, info, memory_budget=own)

    if why := replace_choice(partitioners, choose):
        left(why)


class _Budget:
    """The effect of the compiler's keeping less, and the bytes that steps hold with that."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._divided = False
        self._left = ""
        self._allocator: Allocator | None = None
        self._steps = self._seen = self._peak = 0

    def did(self) -> None:
        self._divided = True

    def leave(self, why: str) -> None:
        self._left = why

    def step_ends(self, torch: ModuleType) -> None:
        self._steps += 1
        if self._steps == WARM:
            self._allocator = Allocator.counting()
            self._say()
            atexit.register(self._say)
        elif self._allocator and not self._allocator.counts_all:
            self._allocator.count_all(torch)
        elif self._allocator:
            self._seen += 1
            peak = self._allocator.peak()
            if peak > _GROWN * self._peak:
                self._peak = peak
                self._say()

    def _say(self) -> None:
        nothing = "" if self._divided else "the script compiles no graph that computes gradients"
        self._tell(
            {
                "type": "given_up",
                "steps": self._seen,
                "groups": int(self._divided),
                "peak": self._peak or None,
                "other": "",
                "left": self._left or nothing,
            }
        )


class _Enforced:
    """From the end of the first step on."""

    def __init__(self, torch: ModuleType, orders: Mapping[str, Any], tell: Tell) -> None:
        self._torch, self._orders, self._tell = torch, orders, tell
        self._around: Around | None = None
        self._allocator: Allocator | None = None
        self._steps = self._given_up = 0
        self._peak = 0
        self._other = self._left = ""

    def __call__(self) -> None:
        if self._around:
            self._around.context.come_back()
            # of optimizers that step in turn, none but the first ends a step
            if self._around.context.begun:
                self._steps += 1
                self._note(self._around)
        elif self._steps:
            self._steps += 1
        elif not self._left:
            self._left = obstacle(self._torch)
            if not self._left:
                context = recomputing(self._torch, self._orders, self._begin)
                self._allocator = Allocator.counting()
                around = Around(self._torch, context)
                around.enter()
                self._around = around
                atexit.register(self._say)
            else:
                self._say()
        # gradients of the first step are from before, and gone at the end of the second
        if self._allocator and self._steps and not self._allocator.counts_all:
            self._allocator.count_all(self._torch)

    def fail(self, why: str) -> None:
        self._left = why
        if self._around:
            self._around.exit()
            self._around = None
        self._say()

    def step_begins(self) -> None:
        """An optimizer's."""
        if self._around:
            self._around.context.leave()

    def _begin(self) -> None:
        """Begin a step: work between two steps, such as validation, belongs to neither."""
        if self._allocator:
            self._allocator.peak()

    def _note(self, around: Around) -> None:
        """The step that has ended."""
        context = around.context
        grown = context.given_up > self._given_up or self._steps == 1
        self._given_up = max(self._given_up, context.given_up)
        if self._allocator and self._allocator.counts_all:
            peak = self._allocator.peak()
            grown |= peak > _GROWN * self._peak
            self._peak = max(self._peak, peak)
        if not self._other and (other := context.other):
            self._other, grown = other, True
        context.begin()
        if grown:
            self._say()
        # where nothing is given up, one peak is all that there is to see
        seen = self._peak or not self._allocator
        if not self._orders["groups"] and seen and around.is_inmost():
            around.exit()
            self._around = None

    def _say(self) -> None:
        self._tell(
            {
                "type": "given_up",
                "steps": self._steps,
                "groups": self._given_up,
                "peak": self._peak or None,
                "other": self._other,
                "left": self._left,
            }
        )
