"""Lets the tests here import the modules that stand beside them, and gives them a browser."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium: the system's, on PATH (Debian: chromium)."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the browser extra")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("needs Chromium on PATH")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # playwright's own event loop
        with playwright.sync_playwright() as running:
            found = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            yield found
            found.close()
