"""The library of pretended ranks, built once."""

from __future__ import annotations

from pathlib import Path

import pretended_ranks
import pytest


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretended_ranks.build(tmp_path_factory.mktemp("horovod"))
