"""Collect what Table IV of the paper needs, train all regressors, print the table beside ours.

    python scripts/table_iv.py FOLDER [--limit SECONDS] [--budget SECONDS]

Training data: the ops of ResNet-50, DCGAN and Inception-v3, run standalone at batch sizes 16 to
256. Test data: AlexNet's. Each model is profiled once at a small batch size that is no channel
count, and its ops are then run standalone at each size, a file each in FOLDER; files that are there
are not made again. A file that takes longer than `--limit`, or needs more memory than is free, is
left out and told. `--budget` ends the command after so long, to share a machine; call it again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).parent
TRAINING = ("resnet50", "dcgan", "inception_v3")
TEST = "alexnet"
SMALL_BATCH = 12
BATCHES = (16, 32, 64, 128, 256)
TOO_LONG = "it takes longer than the limit"
# seconds that no file is made in
LEAST = 25.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=float, default=170.0)
    parser.add_argument("--budget", type=float, default=float("inf"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not collected(arguments.folder, arguments.limit, arguments.budget):
        return


def collected(folder: Path, limit: float, budget: float) -> bool:
    """Make what is missing; whether nothing is missing any more."""
    end = time.monotonic() + budget
    for batch in (None, *BATCHES):
        for model in (*TRAINING, TEST):
            output = piece(folder, model, batch)
            if output.exists() or left_out(output).exists():
                continue
            left = end - time.monotonic()
            if left < LEAST:
                return False
            reason = profiled(output, job(folder, model, batch), min(limit, left))
            if reason is not None:
                output.unlink(missing_ok=True)
                if reason == TOO_LONG and left < limit:
                    return False
                left_out(output).write_text(reason)
    return True


def job(folder: Path, model: str, batch: int | None) -> list[str]:
    if batch is not None:
        return ["--ops-of", str(piece(folder, model, None)), "--batch", str(batch)]
    script = str(SCRIPTS / f"train_{model}.py")
    return ["--", sys.executable, script, "--batch", str(SMALL_BATCH)]


def left_out(output: Path) -> Path:
    """Where it stands why `output` was not made."""
    return output.with_name(output.name + ".left-out")


def piece(folder: Path, model: str, batch: int | None) -> Path:
    return folder / (f"{model}.json.gz" if batch is None else f"{model}_{batch}.json.gz")


def profiled(output: Path, job: list[str], limit: float) -> str | None:
    """Profile; why that did not work, None when it did."""
    print(f"making {output.name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "dltune", "profile", "--steps", "3", "-o", str(output), *job]
    log = output.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return TOO_LONG
    last = [line for line in log.read_text(errors="replace").splitlines() if "dltune: " in line]
    return None if code == 0 else (last or [f"exit code {code}"])[-1]


if __name__ == "__main__":
    main()
