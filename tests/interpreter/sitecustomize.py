"""Runs at the start of every interpreter that a test starts: TensorFlow is imported in two thirds
of the CPU time, which is most of what the tests' jobs take.

There are fewer garbage collections while it makes its million objects, all of which stay; and Keras
does not import scikit-learn, which is here for dltune's regression models alone.
"""

import gc
import sys

gc.set_threshold(100_000, 20, 100)


class WithoutScikitLearn:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "sklearn" and "keras" in sys.modules and "pytest" not in sys.modules:
            raise ModuleNotFoundError("left out of this job", name=name)


sys.meta_path.insert(0, WithoutScikitLearn)
