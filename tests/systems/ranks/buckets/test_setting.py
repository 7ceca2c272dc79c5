"""The setting of buckets inside unmodified PyTorch jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hooked import JOBS, told
from torches import TORCH_PYTHON, needs_torch
from two_ranks import free_port

pytestmark = [pytest.mark.tensorflow, needs_torch]


@pytest.mark.parametrize(
    ("own", "bytes_", "count", "left"),
    [
        ((), 5 << 20, 1, []),
        (("--bucket", "3"), 3 << 20, 0, ["a model: the script sets the size of its buckets"]),
    ],
)
def test_gradients_of_ranks_travel_in_buckets_of_a_size(
    tmp_path: Path, own: tuple[str, ...], bytes_: int, count: int, left: list[str]
) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    rank["MASTER_PORT"] = str(free_port())
    arguments = ("--steps", 3, "--told", tmp_path / "bytes", *own)
    script = JOBS / "torch_ranks.py"
    said = told(script, {"ddp_bucket": "5MiB"}, *arguments, python=TORCH_PYTHON, **rank)
    assert int((tmp_path / "bytes").read_text()) == bytes_
    assert (said["ddp_bucket"].count, said["ddp_bucket"].left) == (count, left)
