"""The ranks of a node meet, and one of them reads ahead for all into shared memory (LMM).

Local rank 0 listens on a socket with an abstract name that all ranks of the job on this node derive
alike. The others connect and receive the memory (a memfd) over it. Neither has a name in any file
system, so a process that is killed leaves nothing behind. Each message is a packet:

    a rank says     {"rank": 3}, and later {"free": slot} for a slot that it has used
    the reader says {"ranks": 4} once all have come, {"memory": size, ...} with its descriptor once
                    it knows the file, then {"filled": ...} for each slot, and at last {"end": true}
                    or {"error": ..., "remedy": ...}

A rank that ends is forgotten. If the reader ends, the closed socket informs the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dltune.base.errors import DltuneError, UsageError
from dltune.systems.lmdb.reader import fetch_binding
from dltune.systems.lmdb.reader.database import Database
from dltune.systems.lmdb.reader.options import PAGE, Layout, Options, Order, Share, layout
from dltune.systems.lmdb.reader.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SLOTS = 2  # one is read while the other is used
GROWTH = 4
ENTRY = 4  # numbers of 8 bytes: value's place and size, key's place and size


@dataclass(frozen=True)
class Filled:
    """A slot's content: `iterations`, their table at `table` (bytes, in memory)."""

    slot: int
    iterations: int
    table: int


@dataclass
class Filling:
    """Fills slots of `memory` (the address of options.memory bytes) for the `shares` of a node.

    Iterations from `next` up to `last` (None: without end).

    The ranks of a node share the memory into which iterations are read ahead (COAL, DIO, PROV). A
    slot holds the records of consecutive iterations, of all the node's ranks, as they are in the
    file: one request reads adjacent data. Behind the records is a table of `ENTRY` numbers per row:
    for each rank, each iteration and each of its records, the places of value and key.
    """

    database: Database
    order: Order
    shares: list[Share]
    options: Options
    tokens: Tokens | None
    memory: int
    next: int
    last: int | None

    def __post_init__(self) -> None:
        self._slot_bytes = self.options.memory // SLOTS // PAGE * PAGE
        together = sum(share.batch for share in self.shares)
        self._most = -(-self.options.parallel // together)

    def close(self) -> None:
        self.database.close()
        if self.tokens:
            self.tokens.close()

    def fill(self, slot: int) -> Filled | None:
        """Read the next iterations into a slot; None when all have been read.

        The first slot holds as few iterations as keep all requests in flight, so that training
        begins soon; each later slot at most `GROWTH` times as many as its predecessor. Raises
        UsageError when an iteration is larger than a slot, or the file cannot be read.
        """
        wanted = self._most if self.last is None else min(self._most, self.last - self.next)
        if wanted <= 0:
            return None
        wanted = self._whole_runs(wanted)
        base = slot * self._slot_bytes

        def read(fitted: _Fitted) -> UsageError | None:
            with self.tokens.held() if self.tokens else contextlib.nullcontext():
                return self.database.fetch(
                    fitted.layout.pieces, self.memory + base, self.options.parallel
                )

        fitted = self.database.settled(
            lambda: self._fitting(wanted),
            read,
            "let the writer commit less often, or give this reader less memory",
        )
        table = base + _aligned(fitted.layout.size)
        self._tell(fitted, table, base)
        self.next += fitted.iterations
        self._most = fitted.iterations * (GROWTH if fitted.iterations == wanted else 1)
        return Filled(slot, fitted.iterations, table)

    def _fitting(self, iterations: int) -> _Fitted:
        """Return as many of the next iterations as a slot holds."""
        import numpy as np

        index = self.database.index
        while True:
            numbers = np.concatenate(
                [share.numbers(self.next, iterations).reshape(-1) for share in self.shares]
            )
            positions = self.database.current(self.order.positions(numbers))
            found = layout(
                index.offsets[positions],
                index.sizes[positions],
                self.options.block,
                self.options.gap,
            )
            size = _aligned(found.size) + len(positions) * ENTRY * 8
            if size <= self._slot_bytes:
                keys, ends = index.keys_at(positions)
                size += len(keys)
                if size <= self._slot_bytes:
                    return _Fitted(iterations, found, index.sizes[positions], keys, ends)
            if iterations == 1:
                raise UsageError(
                    f"memory={self.options.memory} is too small: one iteration of this node takes "
                    f"{size} bytes, and half of the memory is {self._slot_bytes} bytes",
                    remedy=f"use at least memory={SLOTS * (size + PAGE)}",
                )
            fewer = max(1, min(iterations - 1, iterations * self._slot_bytes // size))
            iterations = self._whole_runs(fewer)

    def _whole_runs(self, iterations: int) -> int:
        """At most so many iterations, to the end of a run if that is among them: the rest of a run
        is one request with the others of its node."""
        beyond = (self.next + iterations) % self.shares[0].period
        return iterations - beyond if beyond < iterations else iterations

    def _tell(self, fitted: _Fitted, table: int, base: int) -> None:
        import ctypes

        import numpy as np

        rows = np.empty((len(fitted.sizes), ENTRY), np.uint64)
        behind = table + rows.nbytes
        rows[:, 0] = fitted.layout.places + base
        rows[:, 1] = fitted.sizes
        rows[:, 2] = np.concatenate(([0], fitted.ends[:-1])) + behind
        rows[:, 3] = np.diff(fitted.ends, prepend=0)
        ctypes.memmove(self.memory + table, rows.ctypes.data, rows.nbytes)
        ctypes.memmove(self.memory + behind, fitted.keys, len(fitted.keys))


@dataclass(frozen=True)
class _Fitted:
    """Iterations that fit a slot: their records' layout, sizes and keys."""

    iterations: int
    layout: Layout
    sizes: NDArray[np.uint32]
    keys: bytes
    ends: NDArray[np.int64]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


WAIT_SECONDS = 120.0  # for the node's other ranks to come
LONGEST = 1 << 16  # bytes of a packet
# variables that distinguish a job from others on this node: launchers' names of it, else the ranks'
# common parent
JOB_VARIABLES = (
    "DLTUNE_IO_JOB",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "TORCHELASTIC_RUN_ID",
    "MASTER_PORT",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "PMI_ID_JOB",
)

Message = dict[str, Any]


def meeting_name(environ: Mapping[str, str], path: Path, ordinal: int) -> bytes:
    """The abstract socket's name; `ordinal`: how many readers of this file came before."""
    told = [f"{name}={environ[name]}" for name in JOB_VARIABLES if environ.get(name)]
    status = path.stat()
    parts = [str(os.getuid()), *(told or [f"parent {os.getppid()}"])]
    parts += [str(status.st_dev), str(status.st_ino), str(ordinal)]
    return b"\0dltune-io-" + hashlib.sha256("\0".join(parts).encode()).hexdigest().encode()


class Memory:
    """Anonymous memory of `size` bytes that can be handed to other processes."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        """`descriptor`: of memory that another process made. Raises UsageError when there is not
        that much."""
        import ctypes

        new = descriptor is None
        if descriptor is None:
            from dltune.system.memory import free_bytes

            if size > (there := free_bytes()[0]):
                raise UsageError(
                    f"the reader's memory={size} exceeds the {there} bytes of free memory",
                    remedy=f"use memory={there} or less",
                )
            descriptor = os.memfd_create("dltune-io", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self.map = mmap.mmap(descriptor, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        if new:
            # gives pages to the memory
            fetch_binding.load().dltune_populate(self.address, size)


@dataclass(frozen=True)
class Member:
    """One rank's end: slots as they are filled. `place`: which part of a slot's table is this
    rank's; `records`: how many the database has."""

    connection: socket.socket
    memory: Memory
    place: int
    records: int

    def take(self) -> Filled | None:
        """The next filled slot, waited for; None after the last one. Raises the reader's error, and
        UsageError when its process has ended."""
        message = receive(self.connection)
        if message is None:
            raise UsageError(
                "the process that reads for this node has ended",
                remedy="see the output of local rank 0",
            )
        if "error" in message:
            raise UsageError(message["error"], remedy=message.get("remedy"))
        return None if "end" in message else Filled(*message["filled"])

    def give_back(self, slot: int) -> None:
        # the reader can have ended after its last slot
        with contextlib.suppress(OSError):
            send(self.connection, {"free": slot})

    def close(self) -> None:
        # wakes the reader's thread, which has no need to go on
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def join(name: bytes, rank: int) -> Member:
    """Connect to the node's reader. Raises UsageError when it does not come."""
    until = time.monotonic() + WAIT_SECONDS
    with contextlib.ExitStack() as failing:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        failing.callback(connection.close)
        while True:
            try:
                connection.connect(name)
                break
            except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
                if time.monotonic() > until:
                    raise UsageError(
                        "local rank 0, which reads for this node, did not open the reader within "
                        f"{WAIT_SECONDS:g} s",
                        remedy="open the reader in all ranks of the node (if the launcher sets no "
                        "job name, set DLTUNE_IO_JOB to the same text in all of them), or pass "
                        "node=False",
                    ) from None
                time.sleep(0.02)
        _require_own(connection)
        send(connection, {"rank": rank})
        connection.settimeout(WAIT_SECONDS)
        try:
            answer, _ = _received(connection)
        except TimeoutError:
            raise UsageError(
                "the node's reader did not start: not all ranks of the node opened it",
                remedy="open the reader in all ranks of the node, or pass node=False",
            ) from None
        connection.settimeout(None)  # an index of a large file takes its time
        descriptors: list[int] = []
        if "ranks" in answer:
            answer, descriptors = _received(connection)
        if not descriptors:
            raise UsageError(
                answer.get("error", "the process that reads for this node has ended"),
                remedy=answer.get("remedy", "see the output of local rank 0"),
            )
        memory = Memory(answer["memory"], descriptors[0])
        os.close(descriptors[0])
        failing.pop_all()
        return Member(connection, memory, answer["place"], answer["records"])


def _received(connection: socket.socket) -> tuple[Message, list[int]]:
    """A packet with the descriptors that came with it; {} when the other end is closed."""
    data, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 1)
    return json.loads(data or "{}"), descriptors


def lead(
    name: bytes | None,
    rank: int,
    size: int,
    memory: int,
    filling: Callable[[list[int], Memory], Filling],
) -> Member:
    """Read for `size` ranks of this node, this rank and those that come to `name`.

    `filling` makes the filling for the ranks' numbers, once all are there. Reading goes on in a
    thread until all ranks are done or this one closes its end.
    Raises UsageError when a rank does not come.
    """
    connections: dict[int, socket.socket] = {}
    shared: Memory | None = None
    try:
        if size > 1:
            assert name is not None
            connections = _gathered(name, rank, size)
        for connection in connections.values():
            with contextlib.suppress(OSError):  # it ended: the thread will see that
                send(connection, {"ranks": size})
        shared = Memory(memory)
        filler = filling([rank, *connections], shared)
    except BaseException as error:
        if shared:
            os.close(shared.descriptor)
        for connection in connections.values():
            with contextlib.suppress(OSError):
                send(connection, {"error": str(error)})
            connection.close()
        raise
    records = filler.order.records
    for place, connection in enumerate(connections.values(), 1):
        answer = {"memory": memory, "place": place, "records": records}
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [json.dumps(answer).encode()], [shared.descriptor])
    mine, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    threading.Thread(
        target=_serve,
        args=([own, *connections.values()], filler, shared),
        name="dltune-io",
        daemon=True,
    ).start()
    return Member(mine, shared, 0, records)


def _gathered(name: bytes, rank: int, size: int) -> dict[int, socket.socket]:
    connections: dict[int, socket.socket] = {}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        contextlib.ExitStack() as failing,
    ):
        try:
            listener.bind(name)
        except OSError:
            raise UsageError(
                "another job on this node reads this file under the same name",
                remedy="set DLTUNE_IO_JOB to a unique text for this job, the same in all its ranks",
            ) from None
        listener.listen(size)
        until = time.monotonic() + WAIT_SECONDS
        while missing := size - 1 - len(connections):
            listener.settimeout(max(0.01, until - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise UsageError(
                    f"{missing} of this node's {size} ranks did not open the reader within "
                    f"{WAIT_SECONDS:g} s",
                    remedy="open the reader in all ranks of the node, or pass node=False",
                ) from None
            failing.callback(connection.close)
            _require_own(connection)
            message = receive(connection)
            if message is None:  # came and went
                connection.close()
                continue
            other: int = message["rank"]
            if other == rank or other in connections:
                raise UsageError(
                    f"two processes of this node have rank {other}",
                    remedy="give each process a different rank",
                )
            connections[other] = connection
        failing.pop_all()
    return connections


def _serve(connections: list[socket.socket], filling: Filling, memory: Memory) -> None:
    """Fill slots as they are given back, until all is read or nobody is left.

    connections[0] is this process's own rank: when that closes, the process has no more use for
    further reading, and the others have had every slot that it had. It is informed last: its
    process can end at once, and this thread with it.
    """
    own = connections[0]
    free = list(range(SLOTS))
    using: dict[int, set[socket.socket]] = {}
    left = set(connections)

    def tell(message: Message) -> None:
        for connection in reversed(connections):
            with contextlib.suppress(OSError):  # who has ended hears nothing
                send(connection, message)

    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        try:
            ended = False
            while left and own in left:
                if free and not ended:
                    slot = free.pop()
                    filled = filling.fill(slot)
                    ended = filled is None
                    if filled:
                        using[slot] = set(left)
                    tell({"filled": astuple(filled)} if filled else {"end": True})
                for key, _ in selector.select(None if ended or not free else 0):
                    other = key.fileobj
                    assert isinstance(other, socket.socket)
                    message = receive(other)
                    if message is None:
                        selector.unregister(other)
                        left.discard(other)
                        done = [slot for slot, users in using.items() if other in users]
                    else:
                        done = [message["free"]]
                    for slot in done:
                        using[slot].discard(other)
                        if not using[slot]:
                            del using[slot]
                            free.append(slot)
        except DltuneError as error:
            tell({"error": str(error), "remedy": error.remedy})
        except Exception as error:
            tell({"error": f"the reader failed: {error!r}"})
            raise
        finally:
            for connection in connections:
                connection.close()
            os.close(memory.descriptor)
            filling.close()


def send(connection: socket.socket, message: Message) -> None:
    connection.send(json.dumps(message).encode())


def receive(connection: socket.socket) -> Message | None:
    """None when the other end is closed."""
    try:
        try:
            data = connection.recv(LONGEST)
        except ConnectionResetError:  # it closed with our messages unread; its own are still here
            data = connection.recv(LONGEST)
    except OSError:
        return None
    if not data:
        return None
    message: Message = json.loads(data)
    return message


def _require_own(connection: socket.socket) -> None:
    """Raises UsageError when the other end belongs to another user."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _, user, _ = struct.unpack("3i", credentials)
    if user not in (os.getuid(), 0):
        raise UsageError(
            "a process of another user answers in place of this node's reader", remedy=None
        )
