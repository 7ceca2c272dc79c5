"""Proofs go on where they were interrupted, and what they showed is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "release"))
import prove


def counting(file: Path, code: int = 0) -> list[str]:
    """A command that tells how often it has run."""
    script = (
        f"from pathlib import Path; file = Path({str(file)!r}); "
        "runs = int(file.read_text()) + 1 if file.exists() else 1; file.write_text(str(runs)); "
        f"print('run', runs); raise SystemExit({code})"
    )
    return [sys.executable, "-c", script]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Calls the script for two proofs, the second of which can fail: exit code and figures."""
    monkeypatch.setattr(prove, "KEPT", tmp_path / "proofs.json")
    monkeypatch.setattr(prove, "TABLE", tmp_path / "proofs.md")

    def run(second: int = 0, sources: str = "0", *names: str) -> tuple[int, dict[str, list[str]]]:
        proofs = [
            prove.Proof("one", counting(tmp_path / "one")),
            prove.Proof("two", counting(tmp_path / "two", second)),
        ]
        monkeypatch.setattr(prove, "proofs", lambda: iter(proofs))
        monkeypatch.setattr(prove, "digest", lambda: sources)
        monkeypatch.setattr(sys, "argv", ["prove.py", *names])
        with pytest.raises(SystemExit) as ended:
            prove.main()
        shown = msgspec.json.decode((tmp_path / "proofs.json").read_bytes())
        return int(ended.value.code or 0), {name: one["figures"] for name, one in shown.items()}

    return run


def test_what_has_passed_is_not_run_again_and_what_failed_is(call, tmp_path: Path) -> None:
    assert call(second=3) == (1, {"one": ["run 1"], "two": ["run 1"]})
    assert call() == (0, {"one": ["run 1"], "two": ["run 2"]})
    assert call() == (0, {"one": ["run 1"], "two": ["run 2"]})
    assert "| two | yes | run 2 |" in (tmp_path / "proofs.md").read_text()


def test_other_sources_are_proved_anew_and_the_named_proofs_alone(call) -> None:
    call()
    assert call(0, "1", "tw") == (0, {"one": ["run 1"], "two": ["run 2"]})


def test_results_of_pytest_are_the_figures(tmp_path: Path) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(
        "import pytest\n"
        "def test_good(record_property): record_property('ratio', 1.5)\n"
        "def test_bad(): assert False\n"
        "def test_left(): pytest.skip('no')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    # its own settings, else pytest reads the folders above, in which other tests' folders end
    own = ("-c", str(tmp_path / "pytest.ini"), "-n", "0", str(tests))
    shown = prove.show(prove.Proof("it", prove.pytest(*own)), "0")
    assert not shown.passed
    first, *rest = shown.figures
    assert first == "1 passed, 1 failed, 1 skipped"
    assert sorted(rest) == ["failed: test_it.test_bad", "test_it.test_good: ratio 1.5"]
