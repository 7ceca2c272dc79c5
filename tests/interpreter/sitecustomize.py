"""Runs at the start of every interpreter that a test starts: TensorFlow is imported in two thirds
of the CPU time, which is most of what the tests' jobs take.

There are fewer garbage collections while it makes its million objects, all of which stay; and it
and Keras do not import what is here for other reasons, which they try to and can do without.
"""

import gc
import sys

gc.set_threshold(100_000, 20, 100)

# by whom: dltune has a use for scikit-learn, SciPy and pandas, other tests' jobs for JAX
TRIED = {
    "jax": ("tensorflow.lite.python.util", "keras.src.callbacks.orbax_checkpoint"),
    "pandas": ("keras.src.trainers.data_adapters.array_slicing",),
    "scipy": (
        "tensorflow.python.keras.engine.training_v1",
        "tensorflow.python.keras.engine.training_arrays_v1",
    ),
    "sklearn": ("keras.src.wrappers.fixes", "keras.src.wrappers.sklearn_wrapper"),
}


class LeftOut:
    @staticmethod
    def find_spec(name, path=None, target=None):
        by = (sys.modules.get(importer) for importer in TRIED.get(name, ()))
        if any(one and getattr(one.__spec__, "_initializing", False) for one in by):
            raise ModuleNotFoundError("left out of this job", name=name)


sys.meta_path.insert(0, LeftOut)
