"""A GradientTape loop without any tf.function: each op runs on its own."""

import tensorflow as tf

from arguments import parser, recording

args = parser(__doc__).parse_args()
tf.random.set_seed(0)
inputs = tf.random.normal((256, 512))
targets = tf.random.normal((256, 1))
hidden = tf.Variable(tf.random.normal((512, 1024), stddev=0.05))
output = tf.Variable(tf.random.normal((1024, 1), stddev=0.05))
with recording(args) as record:
    for _ in range(args.steps):
        with tf.GradientTape() as tape:
            predicted = tf.nn.relu(inputs @ hidden) @ output
            loss = tf.reduce_mean(tf.square(predicted - targets))
        for variable, gradient in zip(
            (hidden, output), tape.gradient(loss, (hidden, output)), strict=True
        ):
            variable.assign_sub(0.01 * gradient)
        record(loss)
print("trained")
