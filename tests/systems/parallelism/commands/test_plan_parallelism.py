"""`dltune plan parallelism` as a person meets it: exit codes, what is printed, what is written."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import divided
import msgspec
import pytest
import synthetic

from dltune.plan.plan import load_plan
from dltune.systems.parallelism.schemas.operators import Dimension
from dltune.systems.parallelism.schemas.strategy import Parallelism
from dltune.systems.parallelism.schemas.topology import Link


def dltune(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
    )


def planned(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if "--budget" not in arguments and "--proposals" not in arguments:
        arguments = (*arguments, "--proposals", "50")
    return dltune(folder, "plan", "parallelism", *arguments)


def refused(done: subprocess.CompletedProcess[str], *told: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for part in told:
        assert part in done.stderr


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return write(tmp_path / "network.json", divided.network())


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return write(tmp_path / "cluster.json", divided.cluster())


def write(path: Path, document: msgspec.Struct) -> Path:
    path.write_bytes(msgspec.json.encode(document))
    return path


def test_documents(tmp_path: Path, network: Path, cluster: Path) -> None:
    done = planned(tmp_path, network, "--topology", cluster)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "simulated step of small on small"
    names = [line[:20].strip() for line in lines[2:]]
    assert names[0] == "data parallel"
    assert "planned" in names
    assert any(line.startswith("No strategy in this search space takes less") for line in lines)
    assert any(line.startswith("strategy") for line in lines)
    assert "(roofline)" in done.stdout
    assert "written to" in done.stderr
    section = load_plan(tmp_path / "plan.json").of(Parallelism)
    assert section is not None
    assert (section.network, section.topology, section.batch) == ("small", "small", None)


def test_published_ones_by_name_as_json(tmp_path: Path) -> None:
    done = planned(tmp_path, "lenet", "--topology", "k80:4", "--batch", "32", "--json")
    told = json.loads(done.stdout)
    assert (told["network"], told["topology"], told["batch"]) == ("LeNet", "k80:4", 32)
    assert told["output"] == "plan.json"
    assert [one["name"] for one in told["baselines"]][:1] == ["data parallel"]
    assert told["seconds"] <= min(one["seconds"] for one in told["baselines"])
    assert told["bound"] <= told["seconds"]


def test_the_same_seed_gives_the_same_plan_on_any_number_of_processes(tmp_path: Path) -> None:
    found = []
    for name, processes in (("a.json", "1"), ("b.json", "3")):
        done = planned(
            tmp_path,
            *("LeNet", "--topology", "p100:4", "--proposals", "400", "--seed", "7"),
            *("--processes", processes, "-o", name),
        )
        assert done.returncode == 0, done.stderr
        section = load_plan(tmp_path / name).of(Parallelism)
        assert section is not None
        found.append((section.operators, section.seconds, section.proposals))
    assert found[0] == found[1]


def test_a_budget_in_seconds(tmp_path: Path) -> None:
    done = planned(tmp_path, "LeNet", "--topology", "p100:2", "--budget", "1s")
    assert done.returncode == 0, done.stderr


def test_for_a_consumer(tmp_path: Path, network: Path, cluster: Path) -> None:
    arguments = (network, "--topology", cluster, "--for", "keras", "--mesh", "2x2")
    done = planned(tmp_path, *arguments, "--emit", "keras")
    assert done.returncode == 0, done.stderr
    compile(done.stdout, "plan.py", "exec")
    section = load_plan(tmp_path / "plan.json").of(Parallelism)
    assert section is not None
    assert (section.mesh, section.consumer) == ((2, 2), "keras")
    one = planned(tmp_path, network, "--topology", cluster, "--for", "jax", "-o", "one.json")
    assert one.returncode == 0, one.stderr
    section = load_plan(tmp_path / "one.json").of(Parallelism)
    assert section is not None
    assert section.mesh == (4,)


def test_no_plan_where_one_process_is_as_fast(tmp_path: Path, network: Path) -> None:
    slow = divided.cluster()
    links = tuple(msgspec.structs.replace(link, bandwidth=1e6) for link in slow.links)
    cluster = write(tmp_path / "slow.json", msgspec.structs.replace(slow, links=links))
    done = planned(tmp_path, network, "--topology", cluster, "--for", "jax")
    refused(done, "no plan: one process on one device is predicted to take", "run the job as it is")
    assert not (tmp_path / "plan.json").exists()
    assert planned(tmp_path, network, "--topology", cluster).returncode == 0  # which no job runs


def test_shown_again_and_on_a_page_and_for_perfetto(
    tmp_path: Path, network: Path, cluster: Path
) -> None:
    assert planned(tmp_path, network, "--topology", cluster).returncode == 0
    shown = dltune(tmp_path, "show", "plan.json")
    assert shown.returncode == 0, shown.stderr
    assert "A step of small on 4 devices" in shown.stdout
    table = dltune(tmp_path, "show", "plan.json", "--csv")
    assert table.stdout.startswith("operators,name,type,")
    alone = dltune(tmp_path, "report", "plan.json", "-o", "alone.html")
    assert alone.returncode == 0, alone.stderr
    assert "the documents of small and small are missing" in (tmp_path / "alone.html").read_text()
    refused(
        dltune(tmp_path, "report", "plan.json", "--perfetto", "alone.json.gz"),
        "are missing",
        "together with the plan",
    )
    every = ("plan.json", network, cluster)
    whole = dltune(tmp_path, "report", *every, "-o", "page.html", "--perfetto", "t.json.gz")
    assert whole.returncode == 0, whole.stderr
    page = (tmp_path / "page.html").read_text()
    assert "Device schedule" in page
    assert "are missing" not in page
    trace = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    names = {one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "thread_name"}
    assert {"d0", "d1", "d2", "d3"} <= names


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("Nothing", "--topology", "p100:4"),
            ("neither a file nor a published network", "or one of AlexNet"),
        ),
        (
            ("LeNet", "--topology", "p100"),
            ("neither a file nor a published cluster", "such as p100:16"),
        ),
        (("LeNet", "--topology", "v100:4"), ("neither a file nor a published cluster",)),
        (("LeNet", "--topology", "p100:0"), ("a cluster of 0 GPUs is not possible",)),
        (("LeNet",), ("Missing option '--topology'",)),
        (("none.json", "--topology", "p100:4"), ("cannot read none.json",)),
        (("LeNet", "--topology", "none.json"), ("cannot read none.json",)),
        (
            ("LeNet", "--topology", "p100:4", "--budget", "5s", "--proposals", "5"),
            ("--budget and --proposals cannot be combined",),
        ),
        (("LeNet", "--topology", "p100:4", "--mesh", "2x2"), ("--mesh requires --for",)),
        (
            ("LeNet", "--topology", "p100:4", "--for", "jax", "--mesh", "2x3"),
            ("the mesh 2x3 has 6 devices, but the topology has 4",),
        ),
        (
            ("LeNet", "--topology", "p100:4", "--for", "jax", "--mesh", "1x4"),
            ("an axis of '1x4' has fewer than 2 devices",),
        ),
        (
            ("LeNet", "--topology", "p100:4", "--for", "jax", "--mesh", "2,2"),
            ("'2,2' is not a mesh such as 2x2",),
        ),
        (("LeNet", "--topology", "p100:4", "--batch", "0"), ("--batch",)),
        (("LeNet", "--topology", "p100:4", "--for", "mxnet"), ("--for",)),
        (
            ("LeNet", "--topology", "p100:4", "--emit", "jax"),
            ("on different blocks of devices",),
        ),
    ],
)
def test_what_cannot_be(tmp_path: Path, arguments: tuple[str, ...], told: tuple[str, ...]) -> None:
    refused(planned(tmp_path, *arguments), *told)
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_with_times_of_parts(tmp_path: Path, network: Path, cluster: Path) -> None:
    times = write(tmp_path / "times.json", divided.times())
    done = planned(tmp_path, network, "--topology", cluster, "--times", times)
    assert done.returncode == 0, done.stderr
    parts = len(divided.times().parts)
    measured = f"Op times are measured by JAX 1 for {parts} parts of operators, on 1 core each"
    assert measured in done.stdout
    page = tmp_path / "page.html"
    for documents, drawn in (((network, cluster), False), ((network, cluster, times), True)):
        done = dltune(tmp_path, "report", "plan.json", *documents, "-o", page.name, "--overwrite")
        assert done.returncode == 0, done.stderr
        assert ("simulated: small on small" in page.read_text()) == drawn
    shown = dltune(tmp_path, "show", "plan.json")
    assert measured.removeprefix("Op times are ") in shown.stdout


def test_times_that_are_not_there(tmp_path: Path, network: Path, cluster: Path) -> None:
    few = msgspec.structs.replace(divided.times(), parts=divided.times().parts[:1])
    times = write(tmp_path / "times.json", few)
    refused(planned(tmp_path, network, "--topology", cluster, "--times", times), "times.json lacks")
    refused(planned(tmp_path, network, "--topology", cluster, "--times", "no.json"), "cannot read")
    done = planned(tmp_path, network, "--topology", cluster, "--measure", "1m")
    refused(done, "--measure requires --times")
    assert not (tmp_path / "plan.json").exists()


def test_a_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    done = planned(tmp_path, "LeNet", "--topology", "p100:4", "--scheduler", "tcp://127.0.0.1:1")
    there = importlib.util.find_spec("distributed")
    refused(done, "tcp://127.0.0.1:1 does not answer" if there else "package distributed of dask")


def test_documents_that_cannot_be_planned_for(tmp_path: Path, network: Path, cluster: Path) -> None:
    done = planned(tmp_path, network, "--topology", cluster, "--batch", "4")
    refused(done, "--batch applies only to published networks")
    refused(planned(tmp_path, cluster, "--topology", cluster), "dltune.topology")
    refused(planned(tmp_path, network, "--topology", network), "a dltune.topology file is needed")
    machine = write(tmp_path / "machine.json", synthetic.machine(2))
    refused(planned(tmp_path, machine, "--topology", cluster), "dltune.machine")
    apart = msgspec.structs.replace(divided.cluster(), links=(Link(("d0", "d1"), 1e9, 0.0),))
    lonely = write(tmp_path / "apart.json", apart)
    refused(planned(tmp_path, network, "--topology", lonely), "has no path from d0 to d2")
    sample = Dimension("all", 4, "whole")
    graph = divided.network()
    first = msgspec.structs.replace(graph.operators[0], dimensions=(sample,))
    odd = msgspec.structs.replace(graph, operators=(first,), weights=())
    path = write(tmp_path / "odd.json", odd)
    assert planned(tmp_path, path, "--topology", cluster).returncode == 0, "on one device each"
    before = network.read_bytes()
    for target in (network, cluster):
        done = planned(tmp_path, network, "--topology", cluster, "-o", target, "--overwrite")
        refused(done, "is an input of the plan")
    assert network.read_bytes() == before


def test_help_is_quick_to_read_and_imports_little() -> None:
    code = (
        "import sys; sys.argv = ['dltune', 'plan', 'parallelism', '--help']\n"
        "from dltune.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'dask', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--topology TOPOLOGY" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
