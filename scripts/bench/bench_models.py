"""Measured beside predicted on the bundled models: profile, plan and bench each of them.

Prints one markdown table of all models. The files of each model stay in FOLDER/MODEL; what is there
already is not made again, so a run that was cut short goes on where it stopped.

    python scripts/bench/bench_models.py results --rounds 12
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from dltune.schemas import bench as documents
from dltune.schemas.bench import Bench, Setting

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MODELS = ("resnet50", "dcgan", "inception_v3", "alexnet")
# the three that the project reports on; AlexNet is bundled for a first try
REPORTED = MODELS[:3]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the files of all models go")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=REPORTED, metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds-per-turn", type=float, default=2.0)
    parser.add_argument("--against", default="default,recommended,uniform,plan")
    parser.add_argument("--strategy", default="auto", help="for dltune plan")
    parser.add_argument("--again", action="store_true", help="bench again, profile and plan kept")
    return parser.parse_args()


def dltune(*arguments: object) -> None:
    """Run a dltune command; its table goes to stderr, so that stdout has the markdown alone."""
    command = [sys.executable, "-m", "dltune", *map(str, arguments)]
    done = subprocess.run(command, stdout=sys.stderr)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with exit code {done.returncode}")


def measured(model: str, args: argparse.Namespace) -> Bench:
    """Profile, plan and bench one model, as far as that has not been done."""
    folder = args.folder / model
    folder.mkdir(parents=True, exist_ok=True)
    profile, plan, bench = (folder / f"{name}.json" for name in ("profile", "plan", "bench"))
    job = ["--", sys.executable, EXAMPLES / f"train_{model}.py"]
    if not (profile.exists() and plan.exists()):  # a profile without a plan may be partial
        dltune("profile", "--overwrite", "-o", profile, *job)
        dltune("plan", "--overwrite", "--strategy", args.strategy, "-o", plan, profile)
    if args.again or not bench.exists() or documents.load(bench).partial:
        dltune(
            "bench",
            "--overwrite",
            "--plan",
            plan,
            "--against",
            args.against,
            "--rounds",
            args.rounds,
            "--seconds-per-turn",
            args.seconds_per_turn,
            "-o",
            bench,
            "--pyperf",
            folder / "steps.json",
            *job,
        )
    return documents.load(bench)


HEAD = (
    "model",
    "setting",
    "intra x inter",
    "step ms",
    "spread",
    "time / reference",
    "95 % interval",
    "predicted ratio",
    "off by",
    "predicted ms",
    "T(1 core) / (cores x T)",
    "CPU s",
    "switches vol. / invol.",
)


def rows(model: str, bench: Bench) -> list[tuple[str, ...]]:
    reference = next(s for s in bench.settings if s.name == bench.reference)
    return [_row(model, s, reference, bench) for s in bench.settings if s.summary]


def _row(model: str, setting: Setting, reference: Setting, bench: Bench) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    ratio = found.ratio
    predicted = (
        setting.predicted / reference.predicted
        if setting.predicted and reference.predicted and setting is not reference
        else None
    )
    off = predicted / ratio.median - 1 if predicted and ratio else None
    name = f"plan ({bench.strategy})" if setting.name == "plan" else setting.name
    return (
        model,
        name,
        f"{setting.intra} x {setting.inter}",
        f"{found.step.median * 1e3:.1f}",
        f"{found.step.spread:.1%}",
        f"{ratio.median:.3f}" if ratio else "1",
        f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else "",
        "" if predicted is None else f"{predicted:.3f}",
        "" if off is None else f"{off:+.1%}",
        "" if setting.predicted is None else f"{setting.predicted * 1e3:.1f}",
        "" if found.efficiency is None else f"{found.efficiency:.3f}",
        f"{found.cpu_seconds:.3g}",
        f"{found.voluntary:.0f} / {found.involuntary:.0f}",
    )


def main() -> None:
    args = parse_args()
    benches = {model: measured(model, args) for model in args.models}
    one = next(iter(benches.values()))
    rounds = " / ".join(str(bench.rounds) for bench in benches.values())
    print(
        f"{one.machine.name}, {len(one.machine.cores)} cores; TensorFlow {one.tensorflow}; "
        f"{rounds} rounds\n"
    )
    lines = [HEAD, ["---", "---", *["---:"] * (len(HEAD) - 2)]]
    for model, bench in benches.items():
        lines += rows(model, bench)
    for line in lines:
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
