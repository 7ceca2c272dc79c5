"""Devices on several hosts, which loopback's addresses stand for."""

from __future__ import annotations

import msgspec
import parallel_plans
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.parallelism.enforce import interface, meeting


def on(*hosts: str):
    return msgspec.structs.replace(parallel_plans.dense(), hosts=hosts)


def test_all_on_one_host_meet_by_loopback() -> None:
    for section in (parallel_plans.dense(), on("node0", "node0")):
        found = meeting(section)
        assert (found.here, set(found.hosts)) == ((0, 1), {"127.0.0.1"})


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1", "lo"), ("127.0.0.2", "lo"), ("192.0.2.7", ""), ("no-such-host.invalid", "")],
)
def test_an_address_is_an_interface_s(host: str, name: str) -> None:
    assert interface(host) == name


def test_each_host_has_its_own_and_they_agree() -> None:
    found = meeting(on("127.0.0.1", "192.0.2.7"))
    assert found.here == (0,)
    assert found.hosts == ("127.0.0.1", "192.0.2.7")
    assert found == meeting(on("127.0.0.1", "192.0.2.7"))
    host, port = found.address.split(":")
    assert host == "127.0.0.1"
    assert 1024 < int(port) < 32768


def test_a_machine_without_any_of_the_devices_is_told() -> None:
    with pytest.raises(UsageError, match=r"hosts 192\.0\.2\.7, 192\.0\.2\.8; this machine is none"):
        meeting(on("192.0.2.7", "192.0.2.8"))


def test_every_device_has_a_host() -> None:
    assert [*struct_faults("parallelism", on("a", "b"))] == []
    (fault,) = struct_faults("parallelism", on("a"))
    assert fault.startswith("parallelism.hosts must be of length 2 (one for each device)")
