"""What is done in the Python of a job that imports PyTorch: with packages of that name that are
none."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dltune
from dltune.frameworks.pytorch import INJECTED
from dltune.job import protocol
from dltune.job.launch import Job

PACKAGE = Path(dltune.__file__).parent
FOLDERS = sorted({file.parent for file in PACKAGE.rglob("inject/_dltune_torch*.py")})

FAKE = """
from . import optim, version

__version__ = {version!r}


def compiled_with_cxx11_abi():
    return True
"""
OPTIM = "from . import optimizer\ndel optimizer\n"  # as PyTorch's own
OPTIMIZER = """
hooks = []


def register_optimizer_step_pre_hook(hook):
    hooks.append(hook)


def step():
    for hook in hooks:
        assert hook(None, (), {}) is None
"""
STEPS = "import torch; from torch.optim.optimizer import step; step(); step()"


def package(folder: Path, version: str = "2.99.0", optimizer: str = OPTIMIZER) -> Path:
    """A package `torch` without libraries."""
    (folder / "torch" / "optim").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(FAKE.format(version=version))
    (folder / "torch" / "version.py").write_text("git_version = 'abc'\n")
    (folder / "torch" / "optim" / "__init__.py").write_text(OPTIM)
    (folder / "torch" / "optim" / "optimizer.py").write_text(optimizer)
    return folder


def told(packages: Path, code: str) -> list[protocol.Message]:
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    with Job([sys.executable, "-c", code], environment=environment, stdout=2) as job:
        heard = [event.message for event in job.events(1.0) if event]
        assert job.exit_code == 0
    assert isinstance(heard[0], protocol.Python)
    return heard[1:]


def imported(file: Path) -> set[str]:
    """The packages that it imports; PyTorch only if that is outside functions."""
    tree = ast.parse(file.read_text())
    within = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        packages = {module.partition(".")[0] for module in modules}
        names |= packages - ({"torch"} if node in within else set())
    return names


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_nothing_but_the_standard_library_is_imported(folder: Path) -> None:
    """And PyTorch where a function is called that has it already; in a system's folder, core's
    modules."""
    ours = {file.stem for place in (folder, INJECTED) for file in place.glob("*.py")}
    for file in folder.glob("_dltune_torch*.py"):
        assert imported(file) <= sys.stdlib_module_names | ours | {"_dltune_report"}, file


def test_who_only_imports_it_is_left_alone(tmp_path: Path) -> None:
    assert told(package(tmp_path), "import torch; print(torch.__version__)") == []


def test_the_first_step_of_an_optimizer_is_where_the_plugin_comes(tmp_path: Path) -> None:
    (failed,) = told(package(tmp_path), STEPS)
    assert isinstance(failed, protocol.Failed)
    assert (failed.framework, failed.version) == ("pytorch", "2.99.0")
    assert "not an official Linux wheel: " in failed.reason
    assert failed.reason.endswith("libtorch_cpu.so is missing")


def test_who_asks_first_whether_it_is_there(tmp_path: Path) -> None:
    asked = "import importlib.util; assert importlib.util.find_spec('torch')"
    (failed,) = told(package(tmp_path), f"{asked}; {STEPS}")
    assert isinstance(failed, protocol.Failed)


def test_a_pytorch_that_is_too_old(tmp_path: Path) -> None:
    (failed,) = told(package(tmp_path, "2.5.1+cpu"), STEPS)
    assert isinstance(failed, protocol.Failed)
    assert failed.reason == "PyTorch 2.5.1+cpu is too old: dltune needs 2.6 or newer"


@pytest.mark.parametrize("optimizer", ["def step(): pass", "raise ImportError('broken')"])
def test_a_package_that_is_something_else_is_imported_as_ever(
    tmp_path: Path, optimizer: str
) -> None:
    code = "import contextlib\nwith contextlib.suppress(ImportError): import torch"
    assert told(package(tmp_path, optimizer=optimizer), code) == []


def test_one_module_alone_replaces_what_runs_a_backward_pass() -> None:
    replaces = [
        file for file in PACKAGE.rglob("*.py") if "_engine_run_backward" in file.read_text()
    ]
    assert [file.name for file in replaces] == ["_dltune_torch_passes.py"]


PASSES = """
import sys
from types import ModuleType, SimpleNamespace

sys.path.insert(0, sys.argv[1])
from _dltune_torch_passes import MEMORY, MODES, PLUGIN, around_passes

told = []

def act(name):
    def around(run, *arguments, **options):
        told.append(name)
        try:
            return run(*arguments, **options)
        finally:
            told.append(-name)
    return around

def told_of_a_pass():
    told.clear()
    assert torch.autograd._engine_run_backward("roots", keep=True) == (("roots",), {"keep": True})
    return told

torch = ModuleType("torch")
run = lambda *arguments, **options: (arguments, options)
torch.autograd = SimpleNamespace(_engine_run_backward=run)
torch.autograd.graph = SimpleNamespace(_engine_run_backward=run)
plugin = around_passes(torch, PLUGIN, act(3))
modes = around_passes(torch, MODES, act(1))
memory = around_passes(torch, MEMORY, act(2))
assert torch.autograd._engine_run_backward == torch.autograd.graph._engine_run_backward
assert told_of_a_pass() == [1, 2, 3, -3, -2, -1]
modes()
modes()
assert told_of_a_pass() == [2, 3, -3, -2]
modes = around_passes(torch, MODES, act(4))
plugin()
assert told_of_a_pass() == [4, 2, -2, -4]
"""


def test_functions_around_a_backward_pass_have_an_order() -> None:
    """Whoever came first; one that ends leaves the others."""
    subprocess.run([sys.executable, "-c", PASSES, INJECTED], check=True)
