"""Run the ops of a task again and again until dltune ends this job.

    python -m dltune.frameworks.tensorflow.standalone TASK DONE

One graph holds all ops; none waits for another, and every output is thrown away at once, so that
only inputs (views of one buffer) and the outputs of the op that runs are in memory. DONE tells
which ops were left out, and why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dltune.base.documents import claim
from dltune.profile.standalone import SCHEMA, Done, load_task


def main() -> None:
    task = load_task(Path(sys.argv[1]))
    # oneDNN's kernels are chosen when TensorFlow is imported
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if task.onednn else "0"
    import tensorflow as tf
    from tensorflow.python.eager import context

    from dltune.frameworks.tensorflow.standalone.op_graph import build

    tf.config.threading.set_inter_op_parallelism_threads(1)
    # what no op waits for would be taken out, and ops on the same inputs be merged: only the
    # fusions stay, which make ops what they were in the job
    off = ("dependency", "arithmetic", "loop", "function", "shape")
    options = {f"{name}_optimization": False for name in off}
    tf.config.optimizer.set_experimental_options(
        {**options, "constant_folding": False, "layout_optimizer": False, "remapping": True}
    )
    # it turns large sums into additions to a variable; tf.config has no name for it
    config = tf.compat.v1.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.memory_optimization = rewriting.NO_MEM_OPT
    context.context()._config = config
    made = build(task)
    with claim(Path(sys.argv[2]), overwrite=True) as file:
        file.write(Done(SCHEMA, made.left))
    print(f"running {made.count} ops standalone, skipping {len(made.left)}", flush=True)
    parent = os.getppid()
    while made.count and os.getppid() == parent:  # not on and on when dltune is gone
        made.step(*made.views)


if __name__ == "__main__":
    main()
