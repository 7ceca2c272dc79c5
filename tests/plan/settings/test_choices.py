from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dltune.plan.settings.choices import Applied, as_it_is, means_of
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.space import SPACE, by_name
from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.schemas.settings import Choice
from dltune.system import memory

MACHINE = Machine(SCHEMA, "test", tuple(Core((i, i + 4), i // 2, i // 2, i // 2) for i in range(4)))


def here(*command: str, **environment: str) -> Circumstances:
    return Circumstances(MACHINE, command or ("python", "train.py"), environment)


def choices(**chosen: str) -> list[Choice]:
    return [Choice(setting, value) for setting, value in chosen.items()]


def possible(where: Circumstances) -> dict[str, tuple[str, ...]]:
    return {s.name: s.values(where) for s in SPACE if s.unfit(where) is None}


@st.composite
def sets_of_choices(draw, where: Circumstances) -> list[Choice]:
    ways = possible(where)
    names = draw(st.lists(st.sampled_from(sorted(ways)), unique=True))
    return [Choice(name, draw(st.sampled_from(ways[name]))) for name in names if ways[name]]


@given(sets_of_choices(here()))
def test_what_is_merged_is_all_that_each_choice_does_and_nothing_else(chosen):
    where = here()
    merged = means_of(chosen, where)
    alone = [by_name(c.setting).means(c.value, where) for c in chosen]
    assert merged.environment == {k: v for m in alone for k, v in m.environment.items()}
    assert merged.hooks == {k: v for m in alone for k, v in m.hooks.items()}
    for name, parts in merged.joined.items():
        assert sorted(parts) == sorted(p for m in alone for p in m.joined.get(name, ()))
    assert merged.uniform == next((m.uniform for m in alone if m.uniform), None)
    assert merged.cpus == next((m.cpus for m in alone if m.cpus), None)
    assert sorted(merged.preload) == sorted(p for m in alone for p in m.preload)


def test_an_allocator_and_an_openmp_runtime_are_both_preloaded(tmp_path, monkeypatch):
    runtime, allocator = tmp_path / "lib" / "libiomp5.so", tmp_path / "libtcmalloc.so"
    runtime.parent.mkdir()
    runtime.touch()
    monkeypatch.setattr(memory, "find_allocator", lambda *_: allocator)
    where = here(PATH=str(tmp_path), VIRTUAL_ENV=str(tmp_path))
    merged = means_of(choices(openmp="intel", allocator="tcmalloc"), where)
    assert set(merged.preload) == {runtime, allocator}


@given(st.permutations(choices(threads="4x2", onednn="on", xla="auto", batch_norm="fused")))
def test_the_order_of_choices_is_of_no_matter(chosen):
    assert means_of(chosen, here()) == means_of(sorted(chosen), here())


@given(sets_of_choices(here()))
def test_what_the_user_has_in_the_environment_stays(chosen):
    base = {
        "TF_XLA_FLAGS": "--tf_xla_min_cluster_size=9",
        "GLIBC_TUNABLES": "glibc.malloc.check=3",
        "LD_PRELOAD": "/lib/libmine.so /lib/other.so",
        "HOME": "/home/me",
    }
    set_ = Applied((), means_of(chosen, here())).environment(base)
    assert "HOME" not in set_
    for name in ("TF_XLA_FLAGS", "GLIBC_TUNABLES"):
        assert set_.get(name, base[name]).startswith(base[name])
    preloaded = set_.get("LD_PRELOAD", "/lib/libmine.so:/lib/other.so")
    assert preloaded.endswith("/lib/libmine.so:/lib/other.so")


def test_a_choice_that_the_job_has_already_is_known_by_its_variables():
    on, off = Choice("onednn", "on"), Choice("onednn", "off")
    default = by_name("onednn").default(here())
    for choice in (on, off):
        assert as_it_is(choice, here(), {}) == (choice.value == default)
        set_ = {"TF_ENABLE_ONEDNN_OPTS": "1"}
        assert as_it_is(choice, here(), set_) == (choice == on)
    assert not as_it_is(Choice("batch_norm", "fused"), here(), {})
    assert not as_it_is(Choice("threads", "4x1"), here(), {})
    kept = Choice("onednn_primitives", "kept")
    assert as_it_is(kept, here(), {"TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE": "false"})
    assert not as_it_is(kept, here(), {})
