"""A server and a worker, each a process, struck by faults: `struck_cluster.py FAULTS COUNT SEED`.

Those of struck_steps.py COUNT times each; `dead_worker`, `dead_server` and `restarted_server` once,
in the middle of a step. With none the worker trains until it is ended. Ends as the worker does: one
that has lost its server for good with 3.
"""

import json
import os
import random
import socket
import subprocess
import sys
import time

FAULTS, COUNT, SEED = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])


def supervise() -> int:
    cluster = {}
    for job in ("ps", "worker"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            cluster[job] = [f"127.0.0.1:{free.getsockname()[1]}"]

    def start(job: str) -> subprocess.Popen[str]:
        told = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
        command = [sys.executable, *sys.argv]
        environment = {**os.environ, "TF_CONFIG": told}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    server, worker = start("ps"), start("worker")
    for line in worker.stdout:  # it waits to be struck
        time.sleep(random.uniform(0, 0.03))
        struck = worker if line == "dead_worker\n" else server
        struck.kill()
        struck.wait()
        if line == "restarted_server\n":
            server = start("ps")
    code = worker.wait()
    server.kill()
    server.wait()
    return code if code >= 0 else 128 - code


def train(target: str) -> None:
    import struck_steps
    from struck_steps import errors, v1

    steps = struck_steps.Steps()

    def begun() -> v1.Session:
        session = v1.Session(target)
        session.run(steps.initialize)
        steps.go_well(session)
        return session

    session = begun()
    for fault in filter(None, FAULTS):
        if strike := getattr(struck_steps, fault, None):
            struck = 0
            while struck < COUNT:
                struck += strike(steps, session)
                session = begun() if fault == "closed" else session
                steps.go_well(session)
            continue
        print(fault, flush=True)
        try:
            while True:
                steps.go_well(session)
        except (errors.UnavailableError, errors.AbortedError):
            if fault == "dead_server":
                os._exit(3)
            session = begun()
    while "" in FAULTS:
        steps.go_well(session)


def main() -> None:
    random.seed(SEED)
    if "TF_CONFIG" not in os.environ:
        sys.exit(supervise())
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    told = json.loads(os.environ["TF_CONFIG"])
    server = tf.distribute.Server(told["cluster"], told["task"]["type"], 0)
    if told["task"]["type"] == "ps":
        server.join()
    train(server.target)
    os._exit(0)  # a session waits for what is dead


if __name__ == "__main__":
    main()
