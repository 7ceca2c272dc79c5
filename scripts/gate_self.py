"""What dltune's own gate times: how fast it starts, and how fast it plans a made-up network.

dltune gate ab --base main --config .ci/gate.toml -- python scripts/gate_self.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import synthetic

STARTS = 3


def main() -> None:
    dltune = [sys.executable, "-m", "dltune"]
    for _ in range(STARTS):
        subprocess.run([*dltune, "--help"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        profile, plan = Path(folder) / "profile.json", Path(folder) / "plan.json"
        profile.write_bytes(msgspec.json.encode(synthetic.network(synthetic.machine(8), layers=8)))
        command = [*dltune, "plan", str(profile), "-o", str(plan)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
