"""What is injected into a rank, on a Horovod that is none: its init starts a thread, no more."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import answering_socket
import pytest

from dltune.job.launch import BOOTSTRAP
from dltune.systems import ranks

INJECT = Path(ranks.__file__).parent / "inject"
CPUS = sorted(os.sched_getaffinity(0))
BASICS = """
import threading, time

class HorovodBasics:
    thread = None

    def init(self):
        if self.thread is None:
            self.thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
            self.thread.start()

    def is_initialized(self): return self.thread is not None
    def rank(self): return 1
    def size(self): return 2
    local_rank, local_size = rank, size
    def mpi_enabled(self): return False
"""
TRAIN = """
import os
import horovod.tensorflow as hvd
before = os.sched_getaffinity(0)
hvd.init()
hvd.init()
assert os.sched_getaffinity(0) == before
allowed = sorted(os.sched_getaffinity(hvd.basics.thread.native_id))
print(allowed, os.environ.get("HOROVOD_CYCLE_TIME"))
"""

Rank = Callable[..., tuple[subprocess.CompletedProcess[str], list[dict]]]


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    """`rank(code, answer, **environment)` runs a rank that is answered so at its start."""
    package = tmp_path / "packages" / "horovod"
    (package / "common").mkdir(parents=True)
    (package / "tensorflow").mkdir()
    (package / "__init__.py").write_text("__version__ = '0.99'\n")
    (package / "common" / "__init__.py").touch()
    (package / "common" / "basics.py").write_text(BASICS)
    (package / "tensorflow" / "__init__.py").write_text(
        "from horovod.common.basics import HorovodBasics\n"
        "basics = HorovodBasics()\ninit = basics.init\n"
    )
    answers: list[dict] = [{}]

    def run(
        code: str, answer: dict, **env: str
    ) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
        answers[0] = answer
        paths = os.pathsep.join([str(BOOTSTRAP), str(package.parent)])
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "DLTUNE_SOCKET": path, **env},
        )
        return done, heard

    with answering_socket.listening(tmp_path, answers) as (path, heard):
        yield run


def test_the_background_thread_is_born_on_its_cores_and_told(rank: Rank) -> None:
    cores = {"background": CPUS[-1:], "helpers": CPUS, "first": True}
    answer = {"horovod": {"cores": cores, "settings": {"HOROVOD_CYCLE_TIME": "5"}}}
    env = {"HOROVOD_CYCLE_TIME": "1", "HOROVOD_THREAD_AFFINITY": "0"}

    done, heard = rank(TRAIN, answer, **env)

    assert done.stdout == f"{CPUS[-1:]} 5\n", done.stderr
    assert [message["type"] for message in heard] == ["python", "horovod"]
    told = heard[1]
    assert len(told["threads"]) == 1
    assert told["bound"] == CPUS
    assert told["controller"] == "gloo"
    assert told["settings"]["HOROVOD_CYCLE_TIME"] == "5"
    assert "HOROVOD_THREAD_AFFINITY" not in told["settings"]
    assert told["overridden"] == env
    assert told["slice"] in (None, pytest.approx(1e-4))  # older kernels have none to set


def test_the_import_of_horovod_loads_the_hook(rank: Rank) -> None:
    names = "sorted(name for name in sys.modules if name.startswith('_dltune'))"
    done, _ = rank(f"import horovod\nimport sys; print(*{names})", {})
    assert done.stdout == "_dltune_attach _dltune_horovod\n", done.stderr


def test_without_a_plan_it_only_tells(rank: Rank) -> None:
    done, heard = rank(TRAIN, {}, HOROVOD_CYCLE_TIME="1")
    assert done.stdout == f"{CPUS} 1\n", done.stderr
    assert heard[1]["overridden"] == {}
    assert heard[1]["slice"] is None


def test_an_error_that_ends_it_is_told_first(rank: Rank) -> None:
    code = "import horovod.tensorflow as hvd\nhvd.init()\nraise ValueError('bad batch\\nand more')"
    done, heard = rank(code, {})
    assert done.returncode == 1
    assert "ValueError: bad batch" in done.stderr
    assert (heard[-1]["type"], heard[-1]["error"]) == ("rank_failed", "ValueError: bad batch")


def test_a_horovod_that_reduces_otherwise_is_told(rank: Rank) -> None:
    order = {"shapes": [[1]], "dtypes": ["float32"], "bins": [[[0], None]]}
    done, heard = rank("import horovod.tensorflow", {"horovod": {"orders": [order]}})
    assert (done.returncode, done.stderr) == (0, "")
    assert heard[-1]["why"] == "Horovod 0.99 reduces gradients differently than Horovod 0.28"


def test_a_horovod_that_is_not_there_is_told(rank: Rank) -> None:
    code = "import sys; sys.path = [p for p in sys.path if 'packages' not in p]; import horovod"
    done, heard = rank(code, {})
    assert "ModuleNotFoundError: No module named 'horovod'" in done.stderr
    assert heard[-1]["type"] == "no_horovod"


@pytest.fixture(scope="module")
def injected() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_dltune_horovod", INJECT / "_dltune_horovod.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ORDERS = [
    {"shapes": [[2], [3, 4]], "dtypes": ["float32", "float32"], "bins": [[[1], None], [[0], None]]},
    {"shapes": [[5]], "dtypes": ["float32"], "bins": [[[0], [0, 3]], [[0], [3, 5]]]},
]


@pytest.mark.parametrize(
    ("shapes", "dtypes", "expected"),
    [
        ([[2], [3, 4]], ["float32"] * 2, (ORDERS[0]["bins"], "")),
        ([[5]], ["float32"], (ORDERS[1]["bins"], "")),
        ([[5]], ["float16"], (None, "gradient 0 is float16[5], but float32[5] in the plan")),
        (
            [[2], [3]],
            ["float32"] * 2,
            (None, "gradient 1 is float32[3], but float32[3, 4] in the plan"),
        ),
        (
            [[1]] * 3,
            ["float32"] * 3,
            (None, "it reduces 3 dense gradients, but the plan has 1 or 2"),
        ),
        ([[None]], ["float32"], (None, "some shapes of its gradients are unknown before it runs")),
        ([None], ["float32"], (None, "some shapes of its gradients are unknown before it runs")),
    ],
)
def test_a_call_is_known_by_its_gradients(injected, shapes, dtypes, expected) -> None:
    assert injected._bins(ORDERS, shapes, dtypes) == expected
