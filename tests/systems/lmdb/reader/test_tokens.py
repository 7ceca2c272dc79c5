"""Readers take turns, and those that read together are neighbours; some are killed."""

from __future__ import annotations

import fcntl
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from making import made

from dltune.base.errors import UsageError
from dltune.systems.lmdb import Options, Reader
from dltune.systems.lmdb.reader import tokens as module
from dltune.systems.lmdb.reader.tokens import Tokens

HOLDER = """
import sys
from pathlib import Path
from dltune.systems.lmdb.reader.tokens import Tokens
with Tokens(Path(sys.argv[1]), 1, 0).held():
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def readers(folder: Path, count: int, *numbers: int) -> Iterator[list[Tokens]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(Tokens(folder / "data.mdb", count, number)))
            for number in numbers
        ]


class Reading:
    """A reader that waits for a token in a thread, and holds it until told."""

    def __init__(self, tokens: Tokens) -> None:
        self.holds, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read, args=(tokens,), daemon=True)
        self._thread.start()

    def _read(self, tokens: Tokens) -> None:
        with tokens.held():
            self.holds.set()
            self._ends.wait()

    def end(self) -> None:
        self._ends.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


def wait_for(tokens: Tokens, *numbers: int) -> None:
    """Until these wait, as another reader sees it."""
    for number in numbers:
        while tokens._lowest(module._WAITING, number, number + 1) is None:
            time.sleep(0.01)


@pytest.mark.parametrize("end", [lambda p: p.communicate("\n"), lambda p: p.kill()])
def test_a_token_is_waited_for_and_freed_even_by_death(
    tmp_path: Path, end: Callable[[subprocess.Popen[str]], object]
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "data.mdb")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with readers(tmp_path, 1, 5) as [mine]:
        waiting = Reading(mine)
        assert not waiting.holds.wait(0.3)
        end(holder)
        assert waiting.holds.wait(120)
        waiting.end()
    holder.communicate()


def test_turns_go_through_the_file(tmp_path: Path) -> None:
    """After reader 4 those with higher numbers, then from the lowest on, however they came."""
    with readers(tmp_path, 1, 0, 2, 4, 6, 8) as every:
        zero, two, four, six, eight = every
        first = Reading(four)
        assert first.holds.wait(120)
        came = [(8, eight), (2, two), (6, six), (0, zero)]
        waiting = {}
        for number, tokens in came:
            waiting[number] = Reading(tokens)
            wait_for(four, number)
        first.end()
        for number in (6, 8, 0, 2):
            assert waiting[number].holds.wait(120)
            assert [n for n, one in waiting.items() if one.holds.is_set()] == [number]
            waiting.pop(number).end()


def test_who_reads_is_joined_by_neighbours_alone(tmp_path: Path) -> None:
    """With two tokens of which one is free, reader 1 waits for a turn of its own."""
    with readers(tmp_path, 2, 0, 3, 5, 11) as [zero, three, five, eleven]:
        late = Reading(five)
        assert late.holds.wait(120)
        others = Reading(zero), Reading(three)
        wait_for(five, 0, 3)
        neighbour = Reading(eleven)
        assert neighbour.holds.wait(120)
        assert not any(other.holds.is_set() for other in others)
        late.end()
        assert not others[0].holds.wait(0.3)  # its neighbour still reads
        neighbour.end()
        for other in others:
            assert other.holds.wait(120)
        for other in others:
            other.end()


def test_neighbours_that_wait_read_together(tmp_path: Path) -> None:
    """Whichever of them asks first when the turn before has ended."""
    with readers(tmp_path, 2, 0, 1, 5) as [zero, one, five]:
        for number in range(20):
            before = Reading(five)
            assert before.holds.wait(120)
            both = [Reading(tokens) for tokens in ((zero, one) if number % 2 else (one, zero))]
            wait_for(five, 0, 1)
            before.end()
            for reading in both:
                assert reading.holds.wait(120)
            for reading in both:
                reading.end()


def test_a_reader_whose_turn_is_next_can_be_stopped(tmp_path: Path) -> None:
    with readers(tmp_path, 1, 0, 1) as [zero, one]:
        with zero._locked(fcntl.F_RDLCK, module._WAITING):  # it waits, and never asks
            other = Reading(one)
            assert other.holds.wait(120)
            other.end()
        first = Reading(zero)
        assert first.holds.wait(120)
        first.end()


def test_jobs_with_fewer_tokens_see_all_that_are_held(tmp_path: Path) -> None:
    with readers(tmp_path, 3, 0, 1) as [zero, one], readers(tmp_path, 1, 8) as [other]:
        both = Reading(zero), Reading(one)
        for reading in both:
            assert reading.holds.wait(120)
        waiting = Reading(other)
        both[0].end()  # of the token that the other job knows, or of another
        assert not waiting.holds.wait(0.3)
        both[1].end()
        assert waiting.holds.wait(120)
        waiting.end()


def test_who_has_read_lets_others_read(tmp_path: Path) -> None:
    """In a turn each once: reader 0, done, waits for reader 2 while its neighbour still reads."""
    with readers(tmp_path, 2, 0, 1, 2) as [zero, one, two]:
        first, second = Reading(zero), Reading(one)
        assert first.holds.wait(120)
        assert second.holds.wait(120)
        first.end()
        again = Reading(zero)
        wait_for(one, 0)
        third = Reading(two)
        wait_for(one, 2)
        second.end()
        assert third.holds.wait(120)
        assert not again.holds.is_set()
        third.end()
        assert again.holds.wait(120)
        again.end()


@pytest.mark.parametrize("seed", range(4))
def test_any_readers_at_any_times(tmp_path: Path, seed: int) -> None:
    """Never more than there are tokens, all of them neighbours, and everyone gets its turns."""
    chance = random.Random(seed)
    numbers = sorted(chance.sample(range(40), chance.randint(2, 9)))
    count, rounds = chance.randint(1, 4), 6
    log: list[tuple[str, int]] = []

    def read(tokens: Tokens, place: int, times: list[float]) -> None:
        for pause in times:
            with tokens.held():
                log.append(("begins", place))
                time.sleep(pause)
                log.append(("ends", place))
            time.sleep(pause / 2)

    with readers(tmp_path, count, *numbers) as every:
        threads = []
        for place, tokens in enumerate(every):
            times = [chance.uniform(0, 0.005) for _ in range(rounds)]
            threads.append(threading.Thread(target=read, args=(tokens, place, times), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
    assert sorted(log) == sorted(
        [(kind, place) for kind in ("begins", "ends") for place in range(len(numbers))] * rounds
    )
    reading: set[int] = set()
    for kind, place in log:
        reading = reading | {place} if kind == "begins" else reading - {place}
        assert len(reading) <= count
        assert not reading or max(reading) - min(reading) < count


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([[0, 2, 4], [1, 3, 5]], id="ranks dealt out over the nodes"),
        pytest.param([[0, 1, 2, 3], [4, 5]], id="fewer on the last node"),
        pytest.param([[0, 1], [2, 3, 4, 5]], id="fewer on the first node"),
    ],
)
def test_two_nodes_read_at_the_same_time_with_two_tokens(
    tmp_path: Path, nodes: list[list[int]]
) -> None:
    made(tmp_path / "db", [1000] * 20)
    chosen = Options(stagger=2)
    memory = cast("Any", SimpleNamespace(address=0))
    with ExitStack() as stack:
        reading = []
        for ranks in nodes:
            reader = stack.enter_context(
                Reader(tmp_path / "db", batch=2, rank=ranks[0], size=6, options=chosen)
            )
            filling = reader._filling(ranks, memory)
            stack.callback(filling.close)
            assert filling.tokens is not None
            reading.append(Reading(filling.tokens))
            assert reading[-1].holds.wait(120)
        for one in reading:
            one.end()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot stagger: cannot write .*dltune-tokens"):
        Tokens(tmp_path / "none" / "data.mdb", 1, 0)
