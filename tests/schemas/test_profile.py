from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic
from roofed import roofs

from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.plan import plan
from dltune.plan.threads.decide import choose
from dltune.schemas.profile import Link, Partner, Settings, Tensor, load, task
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.simulate.workload import calibrated

SAMPLES = Path(__file__).parent / "samples"


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=2)
    assert struct_faults("", profile) == []
    path = tmp_path / "profile.json"
    path.write_bytes(msgspec.json.encode(profile))
    assert load(path) == profile


def test_the_machine_s_roofs_are_a_part_that_may_be_missing(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=2)
    build = msgspec.structs.replace(profile.framework, lacks=("AVX2",))
    whole = msgspec.structs.replace(profile, roofs=roofs(), framework=build)
    path = tmp_path / "profile.json"
    path.write_bytes(msgspec.json.encode(whole))
    assert load(path) == whole
    older = msgspec.json.decode(msgspec.json.encode(profile))
    del older["roofs"], older["framework"]["lacks"]
    path.write_bytes(msgspec.json.encode(older))
    assert load(path) == profile
    broken = msgspec.structs.replace(whole, roofs=roofs(frequency=0.0))
    assert struct_faults("", broken) == ["roofs.frequency must be finite and above 0, got 0.0"]


def test_all_faults_are_told_with_their_path(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=1)
    replace = msgspec.structs.replace
    ops = list(profile.ops)
    ops[0] = replace(ops[0], count=-1, times=(replace(ops[0].times[0], threads=0, median=0.0),))
    ops[1] = replace(ops[1], key=ops[0].key, own=-1.0)
    step = profile.steps[0]
    nodes = list(step.nodes)
    nodes[0] = replace(nodes[0], op=99, inputs=(1000,), repeats=-1.0, start=2.0, end=1.0)
    broken = replace(
        profile,
        settings=Settings(0, 1),
        interval=0,
        ops=tuple(ops),
        steps=(replace(step, nodes=tuple(nodes), share=2.0), replace(step, executions=-1)),
    )
    path = tmp_path / "profile.json"
    path.write_bytes(msgspec.json.encode(broken))
    with pytest.raises(UsageError) as caught:
        load(path)
    told = str(caught.value)
    for part in (
        "settings.intra must be at least 1, got 0",
        "interval must be at least 1, got 0",
        "count must be finite and not negative, got -1",
        "times[0].threads must be at least 1, got 0",
        ".min must be at most 0.0 (the median), got ",
        ".own must be finite and not negative, got -1.0",
        "ops must contain each key only once, got ",
        "steps must contain each signature only once, got ",
        ".op must be at least 0 and below ",
        ".inputs must be at least 0 and below ",
        ".repeats must be finite and not negative, got -1.0",
        ".end must be at least 2.0 (the start), got 1.0",
        "steps[0].share must be between 0 and 1, got 2.0",
        "steps[1].executions must be at least 0, got -1",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"{", "is not a dltune.profile file"),
        (b'{"schema": "dltune.profile/3"}', "this version of dltune reads"),
        (b'{"schema": "dltune.profile/1"}', "is missing"),
        (b'{"schema": "dltune.profile/1", "tensorflow": "2.16"}', "unknown field"),
        (b'{"schema": "dltune.plan/1"}', "is a dltune.plan file"),
        (b'{"schema": "dltune.profile/0"}', "this version of dltune reads"),
        (b"\x1f\x8bxx", "damaged gzip"),
    ],
)
def test_files_that_are_no_profile_are_refused(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=told):
        load(path)


def test_a_machine_that_cannot_be_is_told_of() -> None:
    profile = synthetic.network(synthetic.machine(2), layers=1)
    empty = msgspec.structs.replace(profile.machine, cores=())
    faults = struct_faults("", msgspec.structs.replace(profile, machine=empty))
    assert faults == ["machine.cores must not be empty"]


def test_the_settings_that_a_job_ran_under_are_checked_too(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=1)
    twice = (Choice("onednn", "on"), Choice("onednn", "off"))
    section = SettingsPlan(("python",), twice, "rounding", None, None, (), (), 1.0, None)
    (fault,) = struct_faults("", msgspec.structs.replace(profile, under=section))
    assert fault == "under.chosen must contain each setting only once, got 'onednn' 2 times"


def test_a_saved_profile_gives_the_same_answers() -> None:
    """The samples are of an early dltune, the plan from the profile."""
    profile = load(SAMPLES / "profile.json.gz")
    made = plan.load_plan(SAMPLES / "plan.json")
    assert profile.schema == "dltune.profile/1"
    assert (profile.framework.name, profile.framework.version) == ("tensorflow", "2.21.0")
    assert documents.digest(profile) == made.profile
    workload, _ = calibrated(profile)
    threads = choose(workload).threads(workload)
    assert threads.strategy == made.sections["threads"].strategy
    assert [(p.setting, p.seconds) for p in threads.predictions] == [
        (p.setting, pytest.approx(p.seconds)) for p in made.sections["threads"].predictions
    ]


def test_documents_from_before_the_first_release_are_refused_with_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"profile-1.json.gz is invalid: ") as profile:
        load(SAMPLES / "profile-1.json.gz")
    with pytest.raises(UsageError, match=r"plan-1.json is invalid: ") as made:
        plan.load_plan(SAMPLES / "plan-1.json")
    for refused in (profile, made):
        assert refused.value.remedy == "name another file, or create it again with dltune"


def test_faults_of_tensors_and_their_places(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=1)
    replace = msgspec.structs.replace
    step = profile.steps[0]
    nodes = list(step.nodes)
    nodes[0] = replace(nodes[0], outputs=(Tensor("float", -4),))
    nodes[1] = replace(nodes[1], slots=(3,), outputs=(Tensor("float", 4, 1),))
    nodes[2] = replace(nodes[2], slots=(0, 0))
    nodes[3] = replace(nodes[3], partner=Partner("edge_1", "/job:ps", "/job:worker"))
    faults = struct_faults("", replace(profile, steps=(replace(step, nodes=tuple(nodes)),)))
    assert [fault.split(").", 1)[1] for fault in faults] == [
        "outputs[0].bytes must be finite and not negative, got -4",
        "outputs[0].alias must be at least 0 and below 1 (the number of inputs), got 1",
        "slots must have length 1 (one for each input), got 2",
        "slots must be at least 0 and below 1 (the number of outputs of nodes[0]), got 3",
    ]


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("/job:ps/replica:0/task:3/device:CPU:0", "/job:ps/task:3"),
        ("/job:worker/task:12", "/job:worker/task:12"),
        ("/job:localhost", "/job:localhost/task:0"),
        ("/device:CPU:0", ""),
        ("", ""),
    ],
)
def test_the_task_of_a_device(device: str, told: str) -> None:
    assert task(device) == told


def test_a_partner_tells_tensor_and_tasks() -> None:
    met = Partner("edge_12_edge_3_w", "/job:ps/replica:0/task:1/device:CPU:0", "/job:worker/task:0")
    assert met.tasks == ("/job:ps/task:1", "/job:worker/task:0")
    assert met.tensor == "edge_3_w"
    assert Partner("edge_12_").tensor == "edge_12_"
    assert Partner("w", "/job:ps/task:1", "/job:ps/task:1/device:GPU:0").tasks is None
    assert Partner("w", members=2).tasks is None


def test_faults_of_peers_and_links(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=1)
    link = Link("/job:ps/task:0", "/job:worker/task:0", 0.0, 0.0, None, 0, 0.0)
    wrong = msgspec.structs.replace(link, bandwidth=-1.0, fit=2.0)
    (step,) = profile.steps
    peer = msgspec.structs.replace(step, executions=-1)
    broken = msgspec.structs.replace(profile, peers=(peer, peer), links=(link, wrong))
    told = "; ".join(struct_faults("", broken))
    for part in (
        "peers must contain each task and signature only once",
        "peers[0].executions must be at least 0, got -1",
        "links must contain each link only once",
        "links[1].bandwidth must be finite and above 0, got -1.0",
        "links[1].fit must be",
    ):
        assert part in told
