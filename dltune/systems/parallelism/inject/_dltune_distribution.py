"""Inside the job's Python: Keras on JAX trains its models as a plan divides them.

Keras shards what a distribution tells it to, replicates the rest in silence, reads only tf.data in
several processes, and cannot fetch what other processes have. Here a weight that the plan does not
know is an error, each process takes its part of the batches that all read, and what is fetched or
saved is whole.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _dltune_layouts import Entry, Layouts, Refuse, require_known


class Distribution:
    """A plan on the Keras models of this process. `weights`: of these models, by path, whether each
    is divided; `met`: operators of the plan whose outputs were; `unknown`: weights that are no
    operator's, where `partial` leaves them whole."""

    def __init__(self, layouts: Layouts, refuse: Refuse, *, partial: bool = False) -> None:
        self.weights: dict[str, bool] = {}
        self.met: set[str] = set()
        self.unknown: set[str] = set()
        self._layouts = layouts
        self._refuse = refuse
        self._partial = partial

    def taken(self) -> dict[str, Any]:
        """As `messages.Parallel` has it."""
        told: dict[str, Any] = self._layouts.taken(self.weights, self.met, self.unknown)
        return told

    def begin(self) -> None:
        """In force from now on, for what Keras builds."""
        import jax
        import keras
        import numpy as np

        devices = sorted(jax.devices(), key=lambda one: (one.process_index, one.id))
        self._mesh = jax.sharding.Mesh(
            np.array(devices).reshape(self._layouts.mesh), self._layouts.axes
        )
        keras.distribution.set_distribution(self._model_parallel(devices))
        self._hook_layers()
        self._hook_batches()
        self._hook_trainer()
        self._hook_variables()
        self._hook_saving()

    def _sharding(self, entries: tuple[Entry, ...]) -> Any:
        from jax.sharding import NamedSharding, PartitionSpec

        return NamedSharding(self._mesh, PartitionSpec(*entries))

    def _model_parallel(self, devices: list[Any]) -> Any:
        import keras

        layouts, told = self._layouts, self._weight

        class Layout(keras.distribution.TensorLayout):  # type: ignore[misc]
            def _validate_axes(self) -> None:
                """Several axes may divide one dimension, which JAX knows and Keras does not."""

        class Planned(keras.distribution.ModelParallel):  # type: ignore[misc]
            def get_data_layout(self, data_shape: Any) -> Any:
                return Layout(layouts.batch(data_shape), self.device_mesh)

            def get_variable_layout(self, variable: Any) -> Any:
                if getattr(variable, "_layout", None) is not None:
                    return variable._layout  # an optimizer's, as that of its weight
                return Layout(told(variable), self.device_mesh)

            def get_tensor_layout(self, path: str) -> str | None:
                """The operator: how it is divided depends on its shape, for `distribute_tensor`."""
                operator: str | None = layouts.operator(path.removesuffix("/output"))
                return operator

        names = [f"{one.platform}:{one.id}" for one in devices]
        mesh = keras.distribution.DeviceMesh(layouts.mesh, layouts.axes, names)
        planned = Planned(
            layout_map=keras.distribution.LayoutMap(mesh), batch_dim_name=layouts.axes[0]
        )
        planned._is_multi_process = False  # each reads whole batches
        return planned

    def _weight(self, variable: Any) -> tuple[Entry, ...]:
        """How a variable is to be divided. Whether one that is no operator's is a weight of a model
        is seen when the model is trained: there are those of metrics and optimizers too."""
        if not self._layouts.owners(variable.path):
            return (None,) * len(variable.shape)
        try:
            entries: tuple[Entry, ...] = self._layouts.weight(variable.path, variable.shape)
        except ValueError as error:
            self._refuse(str(error), "plan again for the current network")
        return entries

    def _hook_layers(self) -> None:
        import jax
        import keras
        from keras.src import tree
        from keras.src.distribution import distribution_lib

        plain = distribution_lib.distribute_tensor

        @functools.wraps(plain)
        def distribute_tensor(tensor: Any, layout: Any) -> Any:
            if not isinstance(layout, str):
                return plain(tensor, layout)
            self.met.add(layout)
            rank = self._layouts.rank(layout) if len(tree.flatten(tensor)) > 1 else None
            given = functools.partial(self._layouts.output, layout)
            return tree.map_structure(functools.partial(constrained, given, rank), tensor)

        def constrained(
            entries: Callable[[Any], tuple[Entry, ...]], rank: int | None, array: Any
        ) -> Any:
            if not isinstance(array, jax.core.Tracer):
                return array
            if rank is not None and array.ndim != rank:
                return array  # a state beside what the layer gives out
            try:
                sharding = self._sharding(entries(array.shape))
            except ValueError as error:
                self._refuse(str(error), "plan again for the current network")
            return jax.lax.with_sharding_constraint(array, sharding)

        distribution_lib.distribute_tensor = distribute_tensor
        call = keras.layers.Layer.__call__

        @functools.wraps(call)
        def read_and_call(layer: Any, *arguments: Any, **options: Any) -> Any:
            operator = self._layouts.operator(layer.path) if layer.built else None
            if operator is not None and arguments:
                read = functools.partial(self._layouts.input, operator)
                first = tree.map_structure(functools.partial(constrained, read, None), arguments[0])
                arguments = first, *arguments[1:]
            return call(layer, *arguments, **options)

        keras.layers.Layer.__call__ = read_and_call

    def _hook_batches(self) -> None:
        """Every process reads whole batches, all the same, and keeps its part of each."""
        import jax
        import numpy as np
        from keras.src import tree
        from keras.src.backend.jax import distribution_lib, trainer

        def place(batch: Any, *_: Any, **__: Any) -> Any:
            if batch is None:
                return None
            whole = np.asarray(batch)
            sharding = self._sharding(self._layouts.batch(whole.shape))
            return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

        def batches(iterator: Any, _: Any) -> Iterator[Any]:
            for count, batch in enumerate(iterator.data_adapter.get_jax_iterator()):
                if count == 0:
                    self._require_alike([one for one in tree.flatten(batch) if one is not None])
                yield tree.map_structure(place, batch)

        distribution_lib.distribute_data_input = place
        trainer.JAXEpochIterator._get_distributed_iterator = batches

    def _require_alike(self, arrays: list[Any]) -> None:
        import numpy as np
        from jax.experimental.multihost_utils import process_allgather

        sums = [zlib.crc32(np.ascontiguousarray(one).tobytes()) for one in arrays]
        every = np.asarray(process_allgather(np.array(sums, np.uint32)))
        if (every != every[:1]).any():
            self._refuse(
                "the ranks read different batches: each process draws or shuffles the data "
                "differently",
                "set a seed, as in numpy.random.default_rng(0) or shuffle(..., seed=0)",
            )

    def _hook_trainer(self) -> None:
        import jax
        from keras.src import tree
        from keras.src.backend.jax.trainer import JAXTrainer

        def after(plain: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(plain)
            def make(model: Any, *arguments: Any, **options: Any) -> Any:
                self._require_known(model)
                return plain(model, *arguments, **options)

            return make

        for name in ("make_train_function", "make_test_function", "make_predict_function"):
            setattr(JAXTrainer, name, after(getattr(JAXTrainer, name)))
        predict = JAXTrainer.predict_step
        whole = self._sharding(())

        @functools.wraps(predict)
        def predict_step(model: Any, state: Any, data: Any) -> Any:
            outputs, state = predict(model, state, data)
            outputs = tree.map_structure(
                lambda one: jax.lax.with_sharding_constraint(one, whole), outputs
            )
            return outputs, state

        JAXTrainer.predict_step = predict_step

    def _require_known(self, model: Any) -> None:
        """Every weight of a model that is about to run is one operator's."""
        unknown = []
        for variable in model.weights:
            if self._layouts.owners(variable.path):
                entries = self._layouts.weight(variable.path, variable.shape)
                self.weights[variable.path] = any(entries)
            else:
                unknown.append(variable.path)
        if not self._partial:
            require_known(unknown, self._refuse)
        self.unknown.update(unknown)

    def _hook_variables(self) -> None:
        """What is fetched of a variable is whole, in every process."""
        import numpy as np
        from jax.experimental.multihost_utils import process_allgather
        from keras.src.backend.jax.core import Variable

        plain = Variable.__array__

        @functools.wraps(plain)
        def fetch(variable: Any, dtype: Any = None) -> Any:
            value = variable.value
            if value.is_fully_addressable or value.is_fully_replicated:
                return plain(variable, dtype)
            return np.asarray(process_allgather(value, tiled=True), dtype)

        Variable.__array__ = fetch

    def _hook_saving(self) -> None:
        """One process writes what is saved; all take part, as weights are gathered."""
        import jax
        from jax.experimental.multihost_utils import sync_global_devices
        from keras.src.legacy.saving import legacy_h5_format
        from keras.src.saving import saving_lib

        def by_one(plain: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(plain)
            def save(model: Any, filepath: Any, *arguments: Any, **options: Any) -> Any:
                if jax.process_index() == 0:
                    result = plain(model, filepath, *arguments, **options)
                else:
                    folder = Path(tempfile.mkdtemp(prefix="dltune-"))
                    try:
                        name = Path(getattr(filepath, "name", filepath)).name
                        result = plain(model, folder / name, *arguments, **options)
                    finally:
                        shutil.rmtree(folder, ignore_errors=True)
                sync_global_devices("saved")  # who reads it next finds it whole
                return result

            return save

        for module, name in (
            (saving_lib, "save_model"),
            (saving_lib, "save_weights_only"),
            (legacy_h5_format, "save_model_to_hdf5"),
        ):
            setattr(module, name, by_one(getattr(module, name)))
