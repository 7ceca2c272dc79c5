"""Which operators can be timed, without JAX."""

from __future__ import annotations

import pytest

from dltune.base.errors import UsageError
from dltune.systems.parallelism.inputs import requests
from dltune.systems.parallelism.jax.operator_times import Request, require_known
from dltune.systems.parallelism.model.problem import soap
from dltune.systems.parallelism.networks import NETWORKS


@pytest.mark.parametrize("type", ["gru", "conv 3x3/1 selu", "relu conv", "dense ab,bc->ac"])
def test_what_is_unknown_is_named(type: str) -> None:
    with pytest.raises(UsageError, match="contains the unknown word"):
        require_known(Request(type, ((1, 2),), (1, 2)))


def test_what_reads_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="has no inputs"):
        require_known(Request("dense", (), (1, 2)))


@pytest.mark.parametrize("name", NETWORKS)
def test_published_networks_can_be_timed(name: str) -> None:
    for one in requests(NETWORKS[name](4), 2, soap):
        require_known(one)
