from __future__ import annotations

from dltune.machine import page_fault


def test_a_fault_takes_some_time_and_no_eternity() -> None:
    assert 0 < page_fault.seconds() < 1e-3


def test_every_page_faults_once() -> None:
    """What is timed is faults: as many as pages were touched, by the kernel's own account."""
    import resource

    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    page_fault.seconds()
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    assert faults >= page_fault.PAGES * page_fault.TURNS
