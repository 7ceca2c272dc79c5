"""Steps of TensorFlow's servers, struck by one fault COUNT times: `struck_steps.py FAULT COUNT`.

After each strike a step goes well. Prints what was seen as JSON; who started it sees if it hangs.
Processes that are to die are forks of one that has imported TensorFlow and made nothing of it, and
the plugin is loaded in them: a thousand imports would take an hour.
"""

import contextlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

v1, errors = tf.compat.v1, tf.errors
PARAMETERS, SIZE = 16, 512  # 1 MiB each
LONG = 60_000  # ms, for a step that nothing strikes


class Steps:
    """Sums over all parameters and over some, and ops that fail once a parameter is there."""

    def __init__(self) -> None:
        ones = v1.ones_initializer()
        with tf.device("/job:ps/task:0"):
            parameters = [
                v1.get_variable(f"p{number}", (SIZE, SIZE), initializer=ones, use_resource=False)
                for number in range(PARAMETERS)
            ]
            failing = [self._fails(tf.reduce_sum(parameters[0]))]
        with tf.device("/job:worker/task:0"):
            terms = [tf.reduce_sum(parameter) for parameter in parameters]
            self.all = tf.add_n(terms)
            self.parts = [tf.add_n(random.sample(terms, n)) for n in range(2, PARAMETERS)]
            self.failing = failing + [self._fails(term) for term in terms]
        self.initialize = v1.global_variables_initializer()

    @staticmethod
    def _fails(term: tf.Tensor) -> tf.Operation:
        return tf.raw_ops.Assert(condition=term < 0, data=[term])

    def go_well(self, session: v1.Session) -> None:
        found = session.run(self.all, options=v1.RunOptions(timeout_in_ms=LONG))
        assert found == PARAMETERS * SIZE**2, found


def cancelled(steps: Steps, session: v1.Session) -> bool:
    """By its deadline. Whether it was struck, as of all of these."""
    try:
        session.run(steps.all, options=v1.RunOptions(timeout_in_ms=random.randint(1, 20)))
    except errors.DeadlineExceededError:
        return True
    return False


def closed(steps: Steps, session: v1.Session) -> bool:
    """With its session, by another thread."""
    closing = threading.Timer(random.uniform(0, 0.03), session.close)
    closing.start()
    try:
        while True:
            session.run(steps.all)
    except errors.OpError:  # of several kinds
        return True
    except RuntimeError:  # between two
        return False
    finally:
        closing.join()


def failed(steps: Steps, session: v1.Session) -> bool:
    """By an op here or there, when some parameters have come."""
    try:
        session.run([steps.all, random.choice(steps.failing)])
    except errors.InvalidArgumentError:
        return True
    return False


def partial(steps: Steps, session: v1.Session) -> bool:
    """Of fewer parameters."""
    part = random.choice(steps.parts)
    assert session.run(part) == len(part.op.inputs) * SIZE**2
    return True


def together(steps: Steps, session: v1.Session) -> bool:
    """Two at once, one of which is cancelled."""
    other = threading.Thread(target=steps.go_well, args=(session,))
    other.start()
    struck = cancelled(steps, session)
    other.join()
    return struck


class Seen:
    """How often the fault struck, how many steps went well, and by what a process has grown since a
    quarter of the strikes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.struck = self.well = 0
        self._began = time.monotonic()
        self._before: list[int] = []

    def more(self, pid: int) -> bool:
        """Whether there are strikes still to come."""
        if self.struck >= self.count // 4 and not self._before:
            self._before = held(pid)
        return self.struck < self.count

    def tell(self, pid: int) -> None:
        grown = [now - then for now, then in zip(held(pid), self._before, strict=True)]
        told = {
            "struck": self.struck,
            "well": self.well,
            "seconds": round(time.monotonic() - self._began, 1),
            **dict(zip(("bytes", "threads", "files"), grown, strict=True)),
        }
        print(json.dumps(told), flush=True)


def held(pid: int) -> list[int]:
    """Resident bytes, threads and open files."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    counted = (len(list(Path(f"/proc/{pid}/{kind}").iterdir())) for kind in ("task", "fd"))
    return [pages * os.sysconf("SC_PAGE_SIZE"), *counted]


def attach() -> None:
    v1.disable_eager_execution()
    if path := os.environ.get("DLTUNE_SOCKET"):
        import dltune.frameworks.bootstrap
        import dltune.frameworks.tensorflow.inject

        sys.path += [
            *dltune.frameworks.bootstrap.__path__,
            *dltune.frameworks.tensorflow.inject.__path__,
        ]
        import _dltune_attach
        import _dltune_tensorflow

        _dltune_tensorflow.attach(tf, _dltune_attach.Interpreter(path))


def free_cluster() -> dict[str, list[str]]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        server, worker = (f"127.0.0.1:{one.getsockname()[1]}" for one in taken)
    return {"ps": [server], "worker": [worker]}


def in_one_process(fault: Callable[[Steps, v1.Session], bool], count: int) -> None:
    attach()
    cluster = free_cluster()
    servers = [tf.distribute.Server(cluster, job, 0) for job in cluster]
    steps, seen = Steps(), Seen(count)
    session = v1.Session(servers[1].target)
    session.run(steps.initialize)
    while seen.more(os.getpid()):
        seen.struck += fault(steps, session)
        if fault is closed:
            session = v1.Session(servers[1].target)
        steps.go_well(session)
        seen.well += 1
    seen.tell(os.getpid())


def forked(run: Callable[..., None], *arguments: object) -> int:
    """A process that does this and nothing else."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            attach()
            run(*arguments)
            code = 0
        finally:
            os._exit(code)
    return pid


def kill(pid: int) -> None:
    time.sleep(random.uniform(0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def serve(cluster: dict[str, list[str]]) -> None:
    tf.distribute.Server(cluster, "ps", 0).join()


def train(cluster: dict[str, list[str]], say: int) -> None:
    """Says so when a step has gone well, goes on until the server dies, and with the next."""
    server = tf.distribute.Server(cluster, "worker", 0)
    steps = Steps()
    for _ in range(2):
        session = v1.Session(server.target)  # not closed: that waits for a server that is dead
        session.run(steps.initialize)
        steps.go_well(session)
        os.write(say, b"!")
        with contextlib.suppress(errors.UnavailableError, errors.AbortedError):
            while True:
                steps.go_well(session)
    os._exit(0)


def dead_workers(count: int) -> None:
    """One after the other at one address, of one server."""
    cluster, seen = free_cluster(), Seen(count)
    server = forked(serve, cluster)
    heard, say = os.pipe()
    while seen.more(server):
        worker = forked(train, cluster, say)
        seen.well += len(os.read(heard, 1))
        kill(worker)
        seen.struck += 1
    seen.tell(server)
    kill(server)


def dead_servers(count: int) -> None:
    """Two for each worker, at one address."""
    seen = Seen(count)
    heard, say = os.pipe()
    while seen.more(os.getpid()):
        cluster = free_cluster()
        worker = forked(train, cluster, say)
        for _ in range(2):
            server = forked(serve, cluster)
            seen.well += len(os.read(heard, 1))
            kill(server)
            seen.struck += 1
        assert os.waitpid(worker, 0)[1] == 0
    seen.tell(os.getpid())


def main() -> None:
    fault, count = globals()[sys.argv[1]], int(sys.argv[2])
    random.seed(1)
    if fault in (dead_workers, dead_servers):
        fault(count)
    else:
        in_one_process(fault, count)
    os._exit(0)  # servers have no end


if __name__ == "__main__":
    main()
