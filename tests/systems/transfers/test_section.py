"""What cannot be in the section on transfers."""

from __future__ import annotations

import pytest

from dltune.base.documents import struct_faults
from dltune.systems.transfers.section import Prediction, Receiver, Transfer, Transfers

WORKER, SERVER = "/job:worker/task:0", "/job:ps/task:0"
SENT = Transfer("w", SERVER, 4, 1e-3)


def test_a_section_that_can_be() -> None:
    predicted = (Prediction("none", 2.0, 0.0), Prediction("tac", 1.0, 1.0))
    one = Receiver(WORKER, "a", (SENT, Transfer("v", SERVER, 0, None)), 1.0, 2.0, predicted)
    other = Receiver("/job:worker/task:1", "a", (SENT,))
    assert struct_faults("transfers", Transfers("tac", (one, other))) == []


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (Transfers("tic", ()), "transfers.receivers must not be empty"),
        (
            Transfers("tic", (Receiver(WORKER, "a", (SENT,)),), window=0),
            "transfers.window must be at least 1, got 0",
        ),
        (
            Transfers("tic", (Receiver(WORKER, "a", (SENT, SENT)),)),
            f"[0] ({WORKER}).transfers must contain each tensor only once, got 'w'",
        ),
        (
            Transfers("tic", (Receiver(WORKER, "a", ()), Receiver(WORKER, "b", ()))),
            "transfers.receivers must contain each task only once, got",
        ),
        (
            Transfers("tic", (Receiver(WORKER, "a", (Transfer("", SERVER, -1, None),)),)),
            ".transfers[0] ().bytes must be finite and not negative, got -1",
        ),
        (
            Transfers("tic", (Receiver(WORKER, "a", (Transfer("w", "", 1, None),)),)),
            ".transfers[0] (w).sender must be a printable name, got ''",
        ),
        (
            Transfers("tic", (Receiver(WORKER, "a", (Transfer("w\tv", SERVER, 1, None),)),)),
            ".tensor must be a printable name, got",
        ),
        (
            Transfers(
                "tic", (Receiver(WORKER, "a", (), 0.0, 1.0, (Prediction("tac", 1.0, 0.0),)),)
            ),
            ".predictions must start with 'none' and contain 'tic', got ['tac']",
        ),
        (
            Transfers(
                "tic", (Receiver(WORKER, "a", (), 0.0, 1.0, (Prediction("tic", 1.0, 2.0),)),)
            ),
            ".efficiency must be at most 1, got 2.0",
        ),
        (
            Transfers("tic", (Receiver(WORKER, "a", (SENT,), 0.0, -1.0),)),
            ".upper must be finite and not negative, got -1.0",
        ),
    ],
)
def test_faults_are_told_with_their_path(section: Transfers, told: str) -> None:
    assert any(told in fault for fault in struct_faults("transfers", section)), struct_faults(
        "transfers", section
    )
