"""Inside the job's Python: PyTorch's layers and functions on tensors that are divided over a mesh.

Layers whose samples and channels do not touch each other compute on their parts by themselves; what
is left is DTensor's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

# shared by frameworks
from _dltune_layouts import Entry, Layouts, Refuse

REPLAN = "plan again for this network, with --for torch"

# layers whose weights can be divided by what they learn: of each weight the dimension that is
PARAMETER = {
    "Linear": {"weight": 0, "bias": 0},
    "Conv1d": {"weight": 0, "bias": 0},
    "Conv2d": {"weight": 0, "bias": 0},
    "Conv3d": {"weight": 0, "bias": 0},
    "Embedding": {"weight": 1},
    "BatchNorm1d": {"weight": 0, "bias": 0, "running_mean": 0, "running_var": 0},
    "BatchNorm2d": {"weight": 0, "bias": 0, "running_mean": 0, "running_var": 0},
    "BatchNorm3d": {"weight": 0, "bias": 0, "running_mean": 0, "running_var": 0},
}
# without weights, and each channel of each sample by itself
_BY_CHANNEL = ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool", "LPPool", "Upsample")
# layers whose channels come after the samples
_CHANNELS_FIRST = ("Conv", "BatchNorm", "InstanceNorm", *_BY_CHANNEL)


class Layers:
    """On a `mesh` of devices, which is known once the ranks have met. `met`: operators of the plan
    whose outputs were divided."""

    def __init__(self, layouts: Layouts, refuse: Refuse) -> None:
        self.met: set[str] = set()
        self.mesh: Any = None
        self._layouts = layouts
        self._refuse = refuse

    def begin(self, torch: Any) -> None:
        """For what the job computes from now on."""
        self.torch = torch
        self._hook_functions()

    def __deepcopy__(self, _: Any) -> Layers:
        """Of a model whose layers refer to it."""
        return self

    def placed(self, entries: Sequence[Entry]) -> list[Any]:
        """Along each axis of the mesh, which dimension is divided."""
        from torch.distributed.tensor import Replicate, Shard

        found: list[Any] = []
        for axis in self._layouts.axes:
            places = [n for n, one in enumerate(entries) if axis in _axes(one)]
            found.append(Shard(places[0]) if places else Replicate())
        return found

    def as_whole(self, tensor: Any) -> Any:
        """What every process has, as a DTensor."""
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(tensor, self.mesh, self.placed(()), run_check=False)

    def like(self, divided: Any, whole: Any) -> Any:
        """What every process has, divided as `divided` is."""
        from torch.distributed.tensor import Replicate

        placements = [one if one.is_shard() else Replicate() for one in divided.placements]
        return self.as_whole(whole).redistribute(placements=placements)

    def divide(self, module: Any, path: str, kind: str) -> None:
        """How a layer of a `kind` computes from now on."""
        operator = self._layouts.operator(path) if path else None
        layers: dict[str, Callable[..., Any]] = {
            "Linear": self._linear,
            "Conv1d": self._convolution,
            "Conv2d": self._convolution,
            "Conv3d": self._convolution,
            "Embedding": self._embedding,
            "LayerNorm": self._layer_norm,
            "RNN": self._recurrent,
            "LSTM": self._recurrent,
            "GRU": self._recurrent,
            "BatchNorm1d": self._batch_norm,
            "BatchNorm2d": self._batch_norm,
            "BatchNorm3d": self._batch_norm,
        }
        first = kind.startswith(_CHANNELS_FIRST)
        if operator is not None and first and self._layouts.pixels(operator):
            self._refuse(
                f"the plan divides {path!r} by height or width, which PyTorch does not support",
                REPLAN,
            )
        forward = module.forward
        if kind in layers:
            layer = functools.partial(self._of_input, functools.partial(layers[kind], module))
        elif kind.startswith(_BY_CHANNEL):
            by_channel = functools.partial(self._by_channel, forward)
            layer = functools.partial(self._of_input, by_channel)
        else:
            layer = forward
        if operator is not None:
            module.forward = functools.partial(self._planned, operator, first, layer)
        elif layer is not forward:
            module.forward = layer

    def _of_input(self, layer: Callable[..., Any], /, input: Any, *args: Any, **kwargs: Any) -> Any:
        """What is no DTensor, such as a buffer, every process has whole."""
        if not isinstance(input, self.torch.Tensor):
            kind = type(input).__name__
            self._refuse(
                f"the script passes a {kind} to a layer, and only tensors can be divided",
                "pass a tensor to the layer",
            )
        return layer(input if is_divided(input) else self.as_whole(input), *args, **kwargs)

    def _planned(
        self, operator: str, first: bool, layer: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """What the operator `operator` reads and gives out, divided as planned; `first`: whether
        its channels come after the samples."""
        from torch.distributed.tensor import DTensor
        from torch.utils._pytree import tree_map

        if args and isinstance(args[0], DTensor):
            args = self._constrained(self._layouts.input, operator, first, args[0]), *args[1:]
        found = layer(*args, **kwargs)
        rank = self._layouts.rank(operator)
        self.met.add(operator)

        def divided(one: Any) -> Any:
            if not isinstance(one, DTensor) or (one is not found and one.ndim != rank):
                return one  # a state beside what the layer gives out
            return self._constrained(self._layouts.output, operator, first, one)

        return tree_map(divided, found)

    def _constrained(
        self, asked: Callable[..., tuple[Entry, ...]], operator: str, first: bool, tensor: Any
    ) -> Any:
        """Images have their channels after the samples here, and last in a plan."""
        first = first and tensor.ndim > 2
        order = [0, *range(2, tensor.ndim), 1] if first else [*range(tensor.ndim)]
        try:
            entries = asked(operator, [tensor.shape[place] for place in order])
        except ValueError as error:
            self._refuse(str(error), REPLAN)
        own: list[Entry] = [None] * tensor.ndim
        for place, entry in zip(order, entries, strict=True):
            own[place] = entry
        return tensor.redistribute(placements=self.placed(own))

    # -- layers that compute on their parts

    def _linear(self, module: Any, values: Any) -> Any:
        def compute(x: Any, weight: Any, bias: Any = None) -> Any:
            return self.torch.nn.functional.linear(x, weight, bias)

        rank = values.ndim
        weights = module.weight, module.bias
        return self._on_parts(compute, values, weights, range(rank - 1), rank - 1)

    def _convolution(self, module: Any, values: Any) -> Any:
        weights = module.weight, module.bias
        if module.groups > 1 and any(one.is_shard() for one in module.weight.placements):
            self._refuse(
                "the plan divides the weights of a grouped convolution, which PyTorch does not "
                "support",
                REPLAN,
            )

        def compute(x: Any, weight: Any, bias: Any = None) -> Any:
            return module._conv_forward(x, weight, bias)

        channel = values.ndim - len(module.kernel_size) - 1  # 0: of one sample
        return self._on_parts(compute, values, weights, range(channel), channel)

    def _embedding(self, module: Any, values: Any) -> Any:
        def compute(x: Any, weight: Any) -> Any:
            return self.torch.nn.functional.embedding(
                x,
                weight,
                module.padding_idx,
                module.max_norm,
                module.norm_type,
                module.scale_grad_by_freq,
                module.sparse,
            )

        by_all = module.max_norm is not None or module.scale_grad_by_freq
        if module.sparse or (by_all and any(one.is_shard() for one in module.weight.placements)):
            self._refuse(
                "PyTorch cannot divide an embedding with sparse gradients, nor the weights of an "
                "embedding with max_norm or scale_grad_by_freq",
                REPLAN,
            )
        rank = values.ndim
        return self._on_parts(
            compute, values, (module.weight,), () if by_all else range(rank), rank
        )

    def _layer_norm(self, module: Any, values: Any) -> Any:
        def compute(x: Any, *weights: Any) -> Any:
            given = *weights, *[None] * (2 - len(weights))
            return self.torch.nn.functional.layer_norm(
                x, module.normalized_shape, *given, module.eps
            )

        alike = range(values.ndim - len(module.normalized_shape))
        return self._on_parts(compute, values, (module.weight, module.bias), alike, None)

    def _recurrent(self, module: Any, values: Any, hx: Any = None) -> Any:
        """Each sample by itself; where it drops out within, all of them in every process."""
        from torch.distributed.tensor import DTensor, Replicate, Shard
        from torch.utils._pytree import tree_map

        at = 0 if module.batch_first or values.ndim < 3 else 1
        apart = values.ndim == 3 and not (module.training and module.dropout)
        own = [
            Shard(at) if apart and one.is_shard(at) else Replicate() for one in values.placements
        ]
        within = [Shard(1) if one.is_shard() else one for one in own]
        shared = [axis for axis, one in enumerate(own) if one.is_shard()]
        local = _local(self.torch).apply

        def part(state: Any) -> Any:
            whole = state if is_divided(state) else self.as_whole(state)
            return local(whole.redistribute(placements=within), [])

        given = local(values.redistribute(placements=own), [])
        states = None if hx is None else tree_map(part, hx)
        module._update_flat_weights()  # else its forward pass does, as they are others
        weights = module._flat_weights
        module._flat_weights = [local(one, shared) for one in weights]
        try:
            found, ended = type(module).forward(module, given, states)
        finally:
            module._flat_weights = weights
        whole = functools.partial(DTensor.from_local, device_mesh=self.mesh, run_check=False)
        return whole(found, placements=own), tree_map(
            lambda one: whole(one, placements=within), ended
        )

    def _by_channel(self, forward: Callable[..., Any], /, values: Any, **kwargs: Any) -> Any:
        return self._on_parts(lambda x: forward(x, **kwargs), values, (), (0, 1), None)

    def _batch_norm(self, module: Any, values: Any) -> Any:
        """By the mean and the variance of the whole batch, whatever part each process has."""
        torch = self.torch
        training = module.training or module.running_mean is None
        dims = [0, *range(2, values.ndim)]
        shape = [1, -1, *[1] * (values.ndim - 2)]
        tracked: list[Any] = [
            None if one is None else one._local_tensor
            for one in (module.running_mean, module.running_var)
        ]  # this process's parts
        groups = [
            self.mesh.get_group(axis)
            for axis, one in enumerate(values.placements)
            if one.is_shard(0) and not _learns_in_parts((module.weight,), axis)
        ]
        count = values.numel() // values.shape[1]

        def compute(x: Any, *weights: Any) -> Any:
            weight, bias = (*weights, None, None)[:2]
            if not training:
                return torch.nn.functional.batch_norm(
                    x, *tracked, weight, bias, False, 0.0, module.eps
                )
            given, x = x.dtype, x.float() if x.dtype.itemsize < 4 else x
            mean = _added(torch, x.sum(dims), groups) / count
            apart = x - mean.view(shape)
            variance = _added(torch, apart.square().sum(dims), groups) / count
            found = apart * (variance + module.eps).rsqrt().view(shape)
            if weight is not None:
                found = found * weight.view(shape)
            if bias is not None:
                found = found + bias.view(shape)
            if module.training and module.track_running_stats and tracked[0] is not None:
                module.num_batches_tracked.add_(1)
                share = module.momentum
                if share is None:
                    share = 1 / float(module.num_batches_tracked)
                unbiased = variance * count / max(1, count - 1)
                with torch.no_grad():
                    for known, one in zip(tracked, (mean, unbiased), strict=True):
                        known.lerp_(one.to(known.dtype), share)
            return found.to(given)

        weights = module.weight, module.bias
        return self._on_parts(compute, values, weights, (0,), 1, mixes=False)

    def _on_parts(
        self,
        compute: Callable[..., Any],
        values: Any,
        weights: Sequence[Any],
        alike: Sequence[int],
        channel: int | None,
        *,
        mixes: bool = True,
    ) -> Any:
        """What each process computes of its part of `values`: divided by the dimensions `alike`,
        whose places compute the same; and, by the dimension `channel` of what comes of it, as the
        weights are, each of which `mixes` all channels that are read, or reads its own."""
        from torch.distributed.tensor import DTensor, Replicate, Shard
        from torch.utils._pytree import tree_map

        weights = [one for one in weights if one is not None]
        reads: list[Any] = []
        gives: list[Any] = []
        mixed = []  # axes on which each process has the gradients of its own channels alone
        for axis, one in enumerate(values.placements):
            if _learns_in_parts(weights, axis):
                gives.append(Shard(channel))
                reads.append(Replicate() if mixes else gives[-1])
                mixed += [axis] * mixes
            else:
                reads.append(one if one.is_shard() and one.dim in alike else Replicate())
                gives.append(reads[-1])
        values = values.redistribute(placements=reads)
        shared = [n for n, one in enumerate(reads) if one.is_shard() and one.dim in alike]
        local = _local(self.torch).apply
        found = compute(local(values, mixed), *(local(one, shared) for one in weights))
        return tree_map(
            lambda one: DTensor.from_local(one, self.mesh, gives, run_check=False), found
        )

    # -- functions

    def _hook_functions(self) -> None:
        """Attention, which DTensor cannot divide on CPUs."""
        functional = self.torch.nn.functional
        attention = functional.scaled_dot_product_attention

        @functools.wraps(attention)
        def by_heads(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_divided(query):
                return attention(query, key, value, *args, **kwargs)
            return self._attention(attention, query, key, value, *args, **kwargs)

        functional.scaled_dot_product_attention = by_heads
        for name in ("cross_entropy", "nll_loss"):
            setattr(functional, name, self._of_whole(getattr(functional, name)))

    def _of_whole(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A loss that may leave samples out, or weigh them: no mean of the parts' own means."""

        @functools.wraps(plain)
        def loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_divided(input):
                return plain(input, target, *args, **kwargs)
            args, kwargs = all_gathered(((input, target, *args), kwargs))
            return self.as_whole(plain(*args, **kwargs))

        return loss

    def _attention(
        self,
        plain: Callable[..., Any],
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **kwargs: Any,
    ) -> Any:
        from torch.distributed.tensor import DTensor, Replicate

        read = [one if is_divided(one) else self.as_whole(one) for one in (key, value)]
        outer = query.ndim - 2
        same = query.shape[:outer] == key.shape[:outer] == value.shape[:outer]
        kept = [
            one if same and not dropout_p and one.is_shard() and one.dim < outer else Replicate()
            for one in query.placements
        ]
        parts = [one.redistribute(placements=kept) for one in (query, *read)]
        if attn_mask is not None:
            mask = attn_mask if is_divided(attn_mask) else self.as_whole(attn_mask)
            shape = *query.shape[:-1], key.shape[-2]
            attn_mask = mask.expand(shape).redistribute(placements=kept).to_local()
        local = _local(self.torch).apply
        own = (local(one, []) for one in parts)
        found = plain(*own, attn_mask, dropout_p, is_causal, **kwargs)
        return DTensor.from_local(found, self.mesh, kept, run_check=False)


def is_divided(one: Any) -> bool:
    """Whether it is a DTensor: whole or in parts, on the mesh."""
    return hasattr(one, "placements")


def gathered(tensor: Any) -> Any:
    """Whole, in every process, whose gradients are whole, too."""
    from torch.distributed.tensor import Replicate

    whole = [Replicate()] * tensor.device_mesh.ndim
    return tensor.redistribute(placements=whole).to_local(grad_placements=whole)


def all_gathered(values: Any) -> Any:
    """Of a structure of values, with what is divided whole."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda one: gathered(one) if is_divided(one) else one, values)


def _learns_in_parts(weights: Sequence[Any], axis: int) -> bool:
    """Whether an axis of the mesh divides the weights."""
    return any(one is not None and one.placements[axis].is_shard() for one in weights)


def _axes(entry: Entry) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else entry


@functools.cache
def _local(torch: Any) -> Any:
    """A function of autograd's: this process's part of a DTensor, the gradients of which are added
    up over the mesh's axes `shared`, on which others have computed theirs."""
    from torch.distributed.tensor import DTensor

    class Local(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, tensor: Any, shared: Sequence[int]) -> Any:
            context.of = tensor.device_mesh, tensor.placements, tensor.shape
            context.shared = shared
            local = tensor.to_local()
            return local.view_as(local)

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, None]:
            mesh, placements, shape = context.of
            gradient = gradient.contiguous()
            if context.shared:
                groups = [mesh.get_group(axis) for axis in context.shared]
                gradient = _added(torch, gradient, groups)
            stride = torch.empty(shape, device="meta").stride()
            whole = DTensor.from_local(
                gradient, mesh, placements, run_check=False, shape=shape, stride=stride
            )
            return whole, None

    return Local


def _added(torch: Any, tensor: Any, groups: Sequence[Any]) -> Any:
    """The sum over groups of processes, through which gradients go back as sums, too."""
    return _sum(torch).apply(tensor, groups)


@functools.cache
def _sum(torch: Any) -> Any:
    class Sum(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, tensor: Any, groups: Sequence[Any]) -> Any:
            context.groups = groups
            found = tensor.contiguous().clone()
            for group in groups:
                torch.distributed.all_reduce(found, group=group)
            return found

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, None]:
            return _added(torch, gradient, context.groups), None

    return Sum
