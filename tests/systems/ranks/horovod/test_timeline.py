"""Timelines that two real ranks wrote, and what can be wrong with such files."""

from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.systems.ranks.horovod import timeline

RECORDED = Path(__file__).parent / "data"
HEAD = (
    '[\n{"name": "process_name", "ph": "M", "pid": 0, '
    '"args": {"start_time_since_epoch_in_micros":1795255296371091}},\n'
    '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
)


def tensor(pid: int, name: str) -> str:
    """As Horovod introduces a tensor."""
    return (
        f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "{name}"}}}},\n'
        f'{{"name": "process_sort_index", "ph": "M", "pid": {pid}, '
        f'"args": {{"sort_index": {pid}}}}},\n'
    )


def begin(name: str, pid: int, at: int) -> str:
    return f'{{"ph": "B", "name": "{name}", "ts": {at}, "pid": {pid}}}'


def end(pid: int, at: int, args: str = "") -> str:
    return f'{{"ph": "E", "ts": {at}, "pid": {pid}{args}}}'


def joins(rank: int, pid: int, at: int) -> str:
    return f'{{"ph": "X", "name": "{rank}", "ts": {at}, "pid": {pid}, "dur": 0}}'


def cycle(at: int) -> str:
    return f'{{"ph": "i", "name": "CYCLE_START", "ts": {at}, "s": "g"}}'


SHAPE = ', "args": {"dtype": "float32", "shape": "[3, 2]"}'


def written(folder: Path, *records: str, introduced: str = tensor(1, "a")) -> Path:
    path = folder / "timeline.json"
    path.write_text(HEAD + introduced + ",".join(records) + "]")
    return path


def reduced(pid: int, at: int) -> list[str]:
    """A request that the cache answers, and its allreduce."""
    return [
        begin("NEGOTIATE_ALLREDUCE", pid, at),
        end(pid, at + 100),
        begin("ALLREDUCE", pid, at + 150),
        begin("GLOO_ALLREDUCE", pid, at + 160),
        end(pid, at + 360),
        end(pid, at + 370, SHAPE),
    ]


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_real_timeline_with_cycles(controller: str) -> None:
    path = RECORDED / f"{controller}.json.gz"
    recorded = timeline.recording(path)
    found = timeline.summary(recorded)
    assert found.controller == controller
    assert not found.truncated
    assert found.cycles is not None
    assert found.cycles.empty is not None
    assert 0.3 < found.cycles.empty < 1
    assert found.cycles.period.median is not None
    assert 1e-3 <= found.cycles.period.median < 3e-3
    gradients = [t for t in found.tensors if t.name.startswith("DistributedGradientTape")]
    assert sorted(t.bytes or -1 for t in gradients) == [4, 32, 40, 128, 288, 1280, 8192]
    # 24 steps; what the writer has not written when Horovod shuts down is lost
    assert {t.times for t in gradients} == {23}
    # all gradients came with both ranks' marks once, from the cache ever after
    assert found.cached is not None
    assert found.cached > 0.8
    # rank 1 came 50 ms late to the first step, which its negotiation tells
    assert found.late["1"] >= 0.5
    assert found.transfer.samples == found.batches == len(recorded.batches)
    steps = timeline.steps(recorded.batches)
    assert len(steps) == 23
    for step in steps:
        named = [name for batch in step for name in batch.tensors]
        assert sorted(named) == sorted(t.name for t in gradients)
    broadcasts = [batch for batch in recorded.batches if batch.operation == "BROADCAST"]
    assert len(broadcasts) == 7


def test_a_real_timeline_without_cycles_and_cache() -> None:
    found = timeline.read(RECORDED / "uncached.json.gz")
    assert found.cycles is None
    assert found.cached == 0
    assert set(found.late) <= {"0", "1"}
    assert found.late["1"] > 0


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_batches_of_a_real_timeline_follow_one_another(controller: str) -> None:
    recorded = timeline.recording(RECORDED / f"{controller}.json.gz")
    for before, after in itertools.pairwise(recorded.batches):
        assert before.start <= before.end <= after.start
    for batch in recorded.batches:
        assert batch.sent is not None
        assert batch.start <= batch.sent <= batch.sent + batch.transfer <= batch.end + 1e-9


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_file_cut_anywhere_is_read_up_to_there(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = gzip.decompress((RECORDED / "gloo.json.gz").read_bytes())
    cut = data.draw(st.integers(1, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "timeline.json"
    path.write_bytes(whole[:cut])
    full = timeline.recording(RECORDED / "gloo.json.gz")
    try:
        part = timeline.recording(path)
    except UsageError as error:
        assert cut < len(HEAD)
        assert "before its first record" in str(error)  # noqa: PT017
        return
    assert part.truncated
    assert list(part.batches) == list(full.batches[: len(part.batches)])
    assert list(part.cycles) == list(full.cycles[: len(part.cycles)])
    assert part.events <= full.events
    timeline.summary(part)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    path = RECORDED / "mpi.json.gz"
    whole = timeline.recording(path)
    for size in (7, 100, 4099):
        monkeypatch.setattr("dltune.systems.ranks.horovod.timeline.CHUNK", size)
        assert timeline.recording(path) == whole


def test_tensors_that_travel_together_are_one_batch(tmp_path: Path) -> None:
    both = [
        *(begin("NEGOTIATE_ALLREDUCE", pid, 1000) for pid in (1, 2)),
        *(end(pid, 1500) for pid in (1, 2)),
        *(begin("ALLREDUCE", pid, 1600) for pid in (1, 2)),
        *(begin("MEMCPY_IN_FUSION_BUFFER", pid, 1610) for pid in (1, 2)),
        *(end(pid, 1620) for pid in (1, 2)),
        *(begin("MPI_ALLREDUCE", pid, 1700) for pid in (1, 2)),
        *(end(pid, 1900) for pid in (1, 2)),
        *(end(pid, 2000, SHAPE) for pid in (1, 2)),
    ]
    path = written(tmp_path, *both, introduced=tensor(1, "a") + tensor(2, "b"))
    (batch,) = timeline.recording(path).batches
    assert (batch.tensors, batch.bytes) == (("a", "b"), 48)
    assert (batch.start, batch.end, batch.transfer) == pytest.approx((1.6e-3, 2e-3, 2e-4))
    found = timeline.read(path)
    assert found.controller == "mpi"
    assert found.fused.max == 2
    assert found.negotiation.median == pytest.approx(5e-4)
    assert found.queue.median == pytest.approx(2e-4)  # agreed on at 1500, sent at 1700


def test_the_rank_that_joins_in_a_later_pass_is_late(tmp_path: Path) -> None:
    def asked(at: int, *ranks: tuple[int, int]) -> list[str]:
        last = ranks[-1][1]
        return [
            begin("NEGOTIATE_ALLREDUCE", 1, at),
            *(joins(rank, 1, moment) for rank, moment in ranks),
            end(1, last + 1),
            *reduced(1, last + 2)[2:],
        ]

    path = written(
        tmp_path,
        *asked(1000, (0, 1000), (1, 1010)),  # the same pass
        *asked(10000, (0, 10000), (1, 14000)),  # 4 ms later
        *asked(20000, (1, 20000), (0, 21000)),  # the coordinator itself
        *asked(30000, (0, 30000), (1, 30001), (2, 33000)),
    )
    found = timeline.read(path)
    assert found.cached == 0
    assert found.late == {"0": 0.25, "1": 0.25, "2": 0.25}


def test_cycles_without_a_batch_are_empty(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        cycle(1000),
        cycle(2100),
        *reduced(1, 2150),
        cycle(3200),
        cycle(6200),
    )
    cycles = timeline.read(path, cycle_time=1e-3).cycles
    assert cycles is not None
    assert cycles.empty == pytest.approx(2 / 3)
    assert cycles.rate == pytest.approx(3 / 5.2e-3)
    assert cycles.oversleep is not None
    assert cycles.oversleep.max == pytest.approx(2e-3)  # 3 ms for a cycle of 1 ms
    assert cycles.oversleep.samples == 2


def test_a_tensor_that_comes_again_begins_the_next_step(tmp_path: Path) -> None:
    introduced = tensor(1, "a") + tensor(2, "b")
    records = [r for at in (1000, 9000) for pid in (1, 2) for r in reduced(pid, at + 1000 * pid)]
    recorded = timeline.recording(written(tmp_path, *records, introduced=introduced))
    assert [[b.tensors for b in step] for step in timeline.steps(recorded.batches)] == [
        [("a",), ("b",)],
        [("a",), ("b",)],
    ]
    assert timeline.steps(recorded.batches, "BROADCAST") == []


def test_a_recording_that_began_within_an_operation(tmp_path: Path) -> None:
    found = timeline.read(written(tmp_path, end(1, 900), end(1, 950, SHAPE), *reduced(1, 1000)))
    assert found.batches == 1
    assert found.queue.samples == 1


def test_an_operation_that_failed_tells_no_bytes(tmp_path: Path) -> None:
    records = [*reduced(1, 1000)[:-1], end(1, 1500)]
    found = timeline.recording(written(tmp_path, *records))
    assert found.batches[0].bytes is None
    assert timeline.summary(found).tensors[0].bytes is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ('{"traceEvents": []}', "does not start with a list"),
        ("[]", "before its first record"),
        ("[1, 2]", "before its first record"),
        ('[{"ph": "X", "name": "op", "ts": 1, "pid": 1}]', "has no start"),
        ('[\n{"name": "process_name", "ph": "M", "pid": 0, "args"', "before its first record"),
        (HEAD + begin("ALLREDUCE", 7, 3) + "]", "unknown tensor"),
        (HEAD + tensor(1, "a") + joins(0, 1, 3).replace('"0"', '"x"') + "]", "rank 'x'"),
        (HEAD + tensor(1, "a") + end(1, 3).replace('"E"', '"s"') + "]", "record 's'"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=told) as error:
        timeline.read(path)
    assert str(path) in str(error.value)
    assert error.value.remedy


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        timeline.read(tmp_path / "none.json")
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(gzip.compress(HEAD.encode())[:-12])
    with pytest.raises(UsageError, match="damaged gzip"):
        timeline.read(damaged)


def test_a_million_records_take_seconds(tmp_path: Path) -> None:
    """No clock is compared with a limit; pytest's own ends what takes minutes."""
    path = tmp_path / "long.json"
    names = range(1, 101)
    with open(path, "w") as file:
        file.write(HEAD + "".join(tensor(pid, f"gradient {pid}") for pid in names))
        for at in range(0, 1600 * 1000, 1000):
            file.write(",".join(r for pid in names for r in reduced(pid, 100_000 * at + 500 * pid)))
            file.write("," if at < 1599 * 1000 else "]")
    began = time.monotonic()
    found = timeline.read(path)
    print(f"{found.events} records in {time.monotonic() - began:.1f} s")
    assert found.events == 2 + 200 + 960_000
    assert found.batches == 160_000
