"""A TensorFlow 1 graph in a session whose ConfigProto sets threads. Its last variable is of the old
kind, which ops hand on by reference."""

import numpy as np
import tensorflow.compat.v1 as tf

from arguments import parser, recording

arguments = parser(__doc__)
arguments.add_argument("--intra", type=int, default=1)
arguments.add_argument("--inter", type=int, default=1)
args = arguments.parse_args()

tf.disable_eager_execution()
tf.set_random_seed(0)
images = tf.placeholder(tf.float32, (None, 24, 24, 3))
labels = tf.placeholder(tf.int64, (None,))


def variable(name, shape, resource=True):
    initializer = tf.truncated_normal_initializer(stddev=0.05)
    return tf.get_variable(name, shape, initializer=initializer, use_resource=resource)


hidden = tf.nn.relu(tf.nn.conv2d(images, variable("conv1", (3, 3, 3, 16)), 1, "SAME"))
hidden = tf.nn.relu(tf.nn.conv2d(hidden, variable("conv2", (3, 3, 16, 32)), 2, "SAME"))
dense = variable("dense", (12 * 12 * 32, 10), resource=False)
logits = tf.matmul(tf.reshape(hidden, (-1, 12 * 12 * 32)), dense)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)

random = np.random.default_rng(0)
feed = {
    images: random.random((32, 24, 24, 3), dtype=np.float32),
    labels: random.integers(0, 10, 32),
}
config = tf.ConfigProto(
    intra_op_parallelism_threads=args.intra, inter_op_parallelism_threads=args.inter
)
with tf.Session(config=config) as session, recording(args) as record:
    session.run(tf.global_variables_initializer())
    for _ in range(args.steps):
        value, _ = session.run((loss, train), feed)
        record(value)
print("trained")
