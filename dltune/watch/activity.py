"""What a thread of Python is at, by its stack."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from dltune.profile.breakdown import runs_graph
from dltune.schemas.diagnosis import Activity, Python, Share
from dltune.schemas.profile import Line
from dltune.system.proc.process import Frame, calls_torch, own_frame, own_line
from dltune.watch.looks import Stack

LINES = 3
# The one table: an activity, and functions that only run for it, by file and name. The first that
# any frame of a stack matches counts, for validation runs graphs, and to save reads tensors.
_RULES: tuple[tuple[Activity, re.Pattern[str], re.Pattern[str]], ...] = (
    (
        "saving",
        re.compile(
            r"/tensorflow/python/(checkpoint|saved_model|training)/|/keras/src/saving/"
            r"|/keras/src/callbacks/(model_checkpoint|backup_and_restore)|/h5py/"
        ),
        re.compile(r"(.*\.)?(_?save\w*|write|_write\w*|on_epoch_end|on_train_batch_end)"),
    ),
    (
        "saving",
        re.compile(r"/numpy/lib/|/joblib/|/pickle\.py$"),
        re.compile(r"save\w*|dump"),
    ),
    ("saving", re.compile(r"/torch/serialization\.py$"), re.compile(r"_?(legacy_)?save")),
    ("validation", re.compile(r"/keras/"), re.compile(r"(.*\.)?(evaluate|test_step)")),
    (
        "tracing",
        re.compile(r"/tensorflow/python/(eager/polymorphic_function|framework)/"),
        re.compile(
            r"(.*\.)?(trace_function|_maybe_define_function|func_graph_from_py_func"
            r"|_create_concrete_function|_initialize\w*)"
        ),
    ),
    (
        "tracing",
        re.compile(r"/torch/_dynamo/convert_frame\.py$"),
        re.compile(r"(.*\.)?(_compile\w*|__call__)"),
    ),
    (
        "input",
        re.compile(r"/tensorflow/python/data/ops/iterator_ops|/keras/src/trainers/data_adapters/"),
        re.compile(r"(.*\.)?(__next__|_next_internal|get_next)"),
    ),
    (
        "input",
        re.compile(r"/torch/utils/data/"),
        re.compile(r"(.*\.)?(__next__|__iter__|_next_data)"),
    ),
    (
        "queue",
        re.compile(
            r"/queue\.py$|/multiprocessing/(queues|connection|pool)\.py$|/concurrent/futures/"
        ),
        re.compile(r"(.*\.)?(get|_?recv\w*|_?poll|next|__next__|result|wait|as_completed)"),
    ),
    (
        "reading",
        re.compile(r"/tensorflow/python/(framework|ops)/"),
        re.compile(
            r"(.*\.)?(_?numpy|__array__|__float__|__int__|__bool__|__index__|__format__|item)"
        ),
    ),
)
# frames of TensorFlow's own ops in Python, and of Keras around its steps
_OPS = re.compile(r"/tensorflow/python/(ops|framework|util|eager)/|/keras/src/(ops|backend)/")
_FIT = re.compile(r"/keras/src/(trainers|backend/tensorflow/trainer|callbacks|utils)")
_CALL = re.compile(r"/tensorflow/python/eager/polymorphic_function/")
_IMPORTS = re.compile(r"^<frozen importlib")  # a job that only begins
_VALIDATES = re.compile(
    r"(?i)(.*\.)?_?(run_|do_)?(eval|evaluate|evaluation|val|valid|validate|validation|test)"
    r"(_?(one_)?(epoch|model|loop|step|set|batch|network|dataset))?"
)
_GENERATOR = re.compile(r"/tensorflow/python/(ops/script_ops|data/ops/from_generator_op)")


def activity(frames: Sequence[Frame]) -> Activity:
    """`frames`: the innermost first."""
    for name, file, function in _RULES:
        if any(file.search(f.filename) and function.fullmatch(f.name) for f in frames):
            return name
    own = own_frame(frames)
    if own and any(_VALIDATES.fullmatch(f.name) for f in frames[frames.index(own) :]):
        return "validation"
    if runs_graph(frames):
        return "step"
    fit = next((i for i, frame in enumerate(frames) if _FIT.search(frame.filename)), None)
    if fit is not None and own not in frames[:fit]:  # no callback of the job's own
        return "fit"
    if any(_CALL.search(frame.filename) for frame in frames):
        return "call"
    ops = frames and (_OPS.search(frames[0].filename) or calls_torch(frames))
    return "eager" if ops else "python"


def python(pid: int, stacks: Iterable[Stack]) -> Python | None:
    """What the main thread of a process was at, once its imports were done; None where it was not
    seen then."""
    looks: Counter[Activity] = Counter()
    lines: dict[Activity, Counter[str]] = defaultdict(Counter)
    generator: Counter[str] = Counter()
    for thread, frames, count in stacks:
        if any(_IMPORTS.search(frame.filename) for frame in frames):
            continue
        if thread == pid:
            what = activity(frames)
            looks[what] += count
            if where := own_line(frames):
                lines[what][where] += count
        elif any(_GENERATOR.search(frame.filename) for frame in frames):
            generator[own_line(frames) or "?"] += count
    total = looks.total()
    if not total:
        return None
    return Python(
        pid=pid,
        looks=total,
        shares=tuple(
            Share(what, count / total, _most(lines[what], total))
            for what, count in looks.most_common()
        ),
        generator=min(1.0, generator.total() / total),
        generator_lines=_most(generator, total),
    )


def _most(lines: Counter[str], total: int) -> tuple[Line, ...]:
    return tuple(Line(where, min(1.0, n / total)) for where, n in lines.most_common(LINES))
