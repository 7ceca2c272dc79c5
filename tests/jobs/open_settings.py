"""What a script leaves to Keras and tf.data, and what it sets; prints what then holds."""

import json

import keras
import tensorflow as tf

calls = []


class CountBatches(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        calls.append(batch)


def compiled(name: str, **settings: object) -> keras.Model:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)], name=name)
    model.compile("sgd", "mse", **settings)
    return model


def square(x):
    return x, tf.reduce_sum(x, axis=-1, keepdims=True)


keras.utils.set_random_seed(0)
data = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([38, 4], [1, 2])).batch(4)
parallel = data.map(square, num_parallel_calls=2)
ahead = parallel.prefetch(1)
options = tf.data.Options()
options.threading.private_threadpool_size = 1
options.deterministic = True
chosen = ahead.with_options(options)

free, set_, watched = compiled("free"), compiled("set", steps_per_execution=2), compiled("watched")
eager, jit = compiled("eager", run_eagerly=True), compiled("jit", jit_compile=False)
free.fit(parallel, verbose=0, epochs=2)
set_.fit(ahead, verbose=0)
eager.fit(chosen, verbose=0)
watched.fit(chosen, verbose=0, callbacks=[CountBatches()])
uneven = free.optimizer.iterations.numpy()
free.fit(parallel.repeat(), steps_per_epoch=6, verbose=0)
jit.fit(chosen, verbose=0)
prime = compiled("prime")
prime.fit(parallel.repeat(), steps_per_epoch=7, verbose=0)
short = compiled("short")
short.fit(parallel.take(5), verbose=0)
traced = []
several = compiled("several")
several.fit(
    parallel.repeat(),
    epochs=3,
    steps_per_epoch=6,
    validation_data=parallel.repeat(),
    validation_steps=4,
    callbacks=[
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: traced.append(several.train_function is not None)
        )
    ],
    verbose=0,
)
every = (free, set_, watched, eager, prime, short, several, jit)
found = {
    "policy": free.layers[0].dtype_policy.name,
    "xla": {m.name: bool(m.jit_compile) for m in (free, set_, eager, jit)},
    "steps": {m.name: m.steps_per_execution for m in every},
    "traced": traced,
    "iterations": int(uneven),
    "uneven": int(free.optimizer.iterations.numpy() - uneven),
    "batches": len(calls),
    "weights": [float(weight) for weight in jit.layers[0].kernel.numpy().ravel()],
    "saved": free.get_compile_config(),
}
with open("found.json", "w") as file:
    json.dump(found, file, default=str)
