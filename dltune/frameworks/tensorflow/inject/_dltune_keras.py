"""Inside the job's Python: Keras' choices around a training step that the script left open.

A script's own settings are never changed, and Keras saves the same data with a model as before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import weakref
from collections.abc import Callable, Iterator
from numbers import Integral
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

_TRAINER = "keras.src.trainers.trainer"
_TENSORFLOW_TRAINER = "keras.src.backend.tensorflow.trainer"
_POLICY = "keras.src.dtype_policies.dtype_policy"
_BATCH_METHODS = tuple(
    f"on_{what}_{when}"
    for what in ("batch", "train_batch", "test_batch", "predict_batch")
    for when in ("begin", "end")
)


def jit_compile(report: Report) -> Hooks:
    """Value: "on". XLA compiles the step of models whose `compile` left it to Keras, which
    declines on a CPU."""
    yield _TRAINER, lambda trainer: _compile_steps(trainer, report)


def _compile_steps(trainer: ModuleType, report: Report) -> None:
    report.did = "XLA compiles the steps of {count} models"

    def compiled(model: Any, asked: dict[str, Any]) -> None:
        if asked.get("jit_compile", "auto") != "auto":
            report.left(model.name, "the script sets jit_compile itself")
        elif model.run_eagerly:
            report.left(model.name, "the script runs it eagerly")
        elif model.jit_compile:
            report.left(model.name, "XLA already compiles it")
        elif model._distribute_strategy:
            report.left(model.name, "it uses a distribution strategy")
        elif not trainer.model_supports_jit(model):
            report.left(model.name, "it has layers that XLA cannot compile")
        else:
            model.jit_compile = True
            report.acted()

    _after_compile(trainer, compiled, report)


def steps_per_execution(report: Report) -> Hooks:
    """Value: the most steps. `fit` runs so many steps in one execution of TensorFlow's, where
    `compile` left their number open and no callback is called for each batch; fewer if the
    script sets a number of steps that is no multiple of it, since Keras would go on to the next,
    and if an epoch would have hardly any executions of so many."""
    report.did = f"fit runs up to {report.value} steps per execution in {{count}} models"
    most = int(report.value)
    # the models that left it open, with their present number
    given: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def compiled(model: Any, asked: dict[str, Any]) -> None:
        given.pop(model, None)
        if "steps_per_execution" in asked:
            report.left(model.name, "the script sets steps_per_execution itself")
        elif model.run_eagerly:
            report.left(model.name, "the script runs it eagerly")
        else:
            given[model] = 1

    def prepare(model: Any, arguments: dict[str, Any], limits: tuple[str, ...]) -> None:
        """Before `fit` and the like: set the steps at a time; the functions are traced for it."""
        if model not in given or model.steps_per_execution != given[model]:
            return
        whole = math.gcd(*(n for name in limits if isinstance(n := arguments.get(name), Integral)))
        fits = "steps_per_epoch" in limits
        batches = None if whole or not fits else _batches(arguments)
        if (why := _each_batch(arguments)) is not None:
            wanted = 1
        elif not fits and whole % given[model] == 0:
            wanted = given[model]  # another number would have the training step traced again
        else:
            wanted = next(
                n for n in range(most, 0, -1) if whole % n == 0 and _fill(batches or whole, n)
            )
            if wanted == 1 and batches:
                why = f"an epoch of {batches} batches is too short"
            elif wanted == 1:
                told = " and ".join(
                    f"{name}={arguments[name]}" for name in limits if arguments.get(name)
                )
                why = f"{told} has no divisor from 2 to {most}"
        if model.steps_per_execution != wanted:
            given[model] = model.steps_per_execution = report.steps = wanted
            model.train_function = model.test_function = model.predict_function = None
        if why is not None:
            report.left(model.name, why)
        elif fits:
            report.acted(int(model not in seen))
            seen.add(model)

    def on_tensorflow(trainer: ModuleType) -> None:
        cls = trainer.TensorFlowTrainer
        for name, limits in (
            ("fit", ("steps_per_epoch", "validation_steps")),
            ("evaluate", ("steps",)),
            ("predict", ("steps",)),
        ):
            setattr(cls, name, _prepared(getattr(cls, name), limits, prepare, report))

    yield _TRAINER, lambda trainer: _after_compile(trainer, compiled, report)
    yield _TENSORFLOW_TRAINER, on_tensorflow


def _prepared(
    plain: Callable[..., Any],
    limits: tuple[str, ...],
    prepare: Callable[[Any, dict[str, Any], tuple[str, ...]], None],
    report: Report,
) -> Callable[..., Any]:
    @functools.wraps(plain)
    def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        with _told(report, self):
            prepare(self, _asked(plain, self, arguments, options), limits)
        return plain(self, *arguments, **options)

    return wrapped


def _fill(batches: int, steps: int) -> bool:
    """Return True if most executions of an epoch run so many steps; 0 batches: not known."""
    return batches % steps == 0 or batches // steps >= 2


def _batches(asked: dict[str, Any]) -> int | None:
    """Return the batches of an epoch of `fit`; None if the data do not show it."""
    data: Any = asked.get("x")
    while isinstance(data, (list, tuple, dict)) and data:
        data = next(iter(data.values() if isinstance(data, dict) else data))
    if hasattr(data, "cardinality"):
        count = int(data.cardinality())
        return count if count > 0 else None  # else endless, or not known
    if shape := getattr(data, "shape", None):
        examples = int(int(shape[0]) * (1 - (asked.get("validation_split") or 0)))
        return math.ceil(examples / (asked.get("batch_size") or 32))
    return len(data) if hasattr(data, "__len__") else None


def _each_batch(asked: dict[str, Any]) -> str | None:
    """Return why a callback of this call would see a difference if several steps were run at a
    time."""
    callbacks = asked.get("callbacks") or []
    callbacks = getattr(callbacks, "callbacks", callbacks)
    for callback in callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]:
        if _wants_batches(callback):
            return f"the callback {type(callback).__name__} is called for each batch"
    return None


def _wants_batches(callback: Any) -> bool:
    """Return True if a callback's effect depends on being called for every batch."""
    cls = type(callback)
    if cls.__module__.startswith("keras.src.callbacks."):
        if cls.__name__ in ("ProgbarLogger", "History"):
            return False
        for name in ("save_freq", "update_freq"):
            if hasattr(callback, name):
                return bool(getattr(callback, name) != "epoch")
    base = next(b for b in cls.__mro__ if b.__name__ in ("Callback", "object"))
    return any(
        name in vars(callback) or getattr(cls, name, None) is not getattr(base, name, None)
        for name in _BATCH_METHODS
    )


def precision(report: Report) -> Hooks:
    """Value: a policy, such as "mixed_bfloat16": Keras' default where the script sets none."""

    def on_policy(policies: Any) -> None:
        report.did = f"{report.value} is Keras's default dtype policy"
        plain, by_script = policies.dtype_policy, policies.set_dtype_policy
        state, backend = policies.global_state, policies.backend
        told: list[bool] = []

        @functools.wraps(plain)
        def dtype_policy() -> Any:
            if state.get_global_attribute("dtype_policy", None) is None:
                if backend.backend() != "tensorflow":
                    report.left("Keras", f"uses the backend {backend.backend()}")
                elif backend.floatx() != "float32":
                    report.left("Keras", f"its default type is {backend.floatx()}")
                else:
                    state.set_global_attribute("dtype_policy", policies.DTypePolicy(report.value))
                    if not told:
                        told.append(True)
                        report.acted()
            return plain()

        @functools.wraps(by_script)
        def set_dtype_policy(policy: Any) -> None:
            by_script(policy)
            report.left("Keras", "the script sets a dtype policy itself")

        policies.dtype_policy = dtype_policy
        policies.set_dtype_policy = set_dtype_policy

    yield _POLICY, on_policy


def _after_compile(
    trainer: ModuleType, act: Callable[[Any, dict[str, Any]], None], report: Report
) -> None:
    """Call `act` with a model that was compiled, and the script's arguments."""
    cls = trainer.Trainer
    plain = cls.compile
    backend = trainer.backend.backend()

    @functools.wraps(plain)
    def compile(self: Any, *arguments: Any, **options: Any) -> Any:
        result = plain(self, *arguments, **options)
        if backend == "tensorflow":
            with _told(report, self):
                act(self, _asked(plain, self, arguments, options))
        return result

    cls.compile = compile


def _asked(
    plain: Callable[..., Any], model: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, without omitted arguments."""
    return dict(inspect.signature(plain).bind(model, *arguments, **options).arguments)


@contextlib.contextmanager
def _told(report: Report, model: Any) -> Iterator[None]:
    """Report errors here, and let the job go on as its script says."""
    try:
        yield
    except Exception as error:
        report.left(model.name, f"{type(error).__name__}: {error}")
