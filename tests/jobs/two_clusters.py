"""Two clusters one after the other, each a parameter server and a worker that train the same model:
what differs between them is what differs between two launches of one job."""

import contextlib
import socket

import tensorflow as tf

SIZE, STEPS = 64, 4
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.disable_control_flow_v2()  # a loop is nodes of the graph


def free_ports(count: int) -> list[int]:
    """Different ones: each is held until all are known."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def model() -> tf.Operation:
    with tf.device("/job:ps"):
        weights = v1.get_variable("weights", (SIZE, SIZE), initializer=v1.ones_initializer())
    with tf.device("/job:worker"):
        left, right = tf.split(v1.random_normal((SIZE, 2 * SIZE), seed=1), 2, axis=1)
        _, product = tf.while_loop(
            lambda n, _: n < 2, lambda n, x: (n + 1, tf.matmul(x, weights)), (0, right)
        )
        gradient = tf.matmul(left, product) * 1e-9
    with tf.device("/job:ps"):
        return v1.assign_sub(weights, gradient)


def train() -> None:
    ports = zip(("ps", "worker"), free_ports(2), strict=True)
    addresses = {name: [f"127.0.0.1:{port}"] for name, port in ports}
    servers = [tf.distribute.Server(addresses, name, 0) for name in addresses]
    with tf.Graph().as_default():
        step = model()
        with v1.Session(servers[1].target) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(STEPS):
                session.run(step)


train()
train()
