"""`make demo`: find out why a training job is slow, and prove how much faster it can be.

The job is a script of this folder with one common mistake: a thread count for a larger host. The
demo confines itself to two CPUs, as a container would, and prints each command before it runs it.
Its files are in demo/; demo/report.html shows them all.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path("demo")
DLTUNE = ".venv/bin/dltune"
# of each framework the Python that has it, and the job
JOBS = {
    "tensorflow": (".venv/bin/python", "scripts/examples/train_resnet_64_threads.py"),
    "torch": (".venv-torch/bin/python", "scripts/examples/train_torch_resnet_16_threads.py"),
}


def heading(text: str) -> None:
    print(f"\n--- {text}", flush=True)


def run(*command: str) -> list[str]:
    """Print the command, run it, and return the lines that it printed on stdout."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"demo: the command failed with exit code {process.returncode}")
    return lines


def two_cpus() -> set[int]:
    """Return two of the CPUs that are allowed here, on two cores if possible."""
    allowed = sorted(os.sched_getaffinity(0))
    siblings = Path(f"/sys/devices/system/cpu/cpu{allowed[0]}/topology/core_cpus_list")
    core = siblings.read_text().strip() if siblings.exists() else str(allowed[0])
    same_core = {int(cpu) for part in core.split(",") for cpu in part.split("-")}
    others = [cpu for cpu in allowed[1:] if cpu not in same_core] or allowed[1:]
    if not others:
        sys.exit("demo: it needs two CPUs, only one is available here")
    return {allowed[0], others[0]}


def samples_per_second(lines: list[str]) -> float:
    """Return the last speed that the job printed."""
    return float(re.findall(r"([0-9.]+) samples/s", "".join(lines))[-1])


def other_fixes(plan: dict) -> list[str]:
    """Return the settings of the plan, without thread counts, which `dltune plan` chooses."""
    settings = plan["sections"].get("settings", {}).get("chosen", [])
    return [choice["setting"] for choice in settings if choice["setting"] != "threads"]


def speed_up(bench: dict, name: str) -> tuple[float, float, float]:
    """Return how many times as fast as found a setting is, and its 95 % interval."""
    summary = next(s["summary"] for s in bench["settings"] if s["name"] == name)
    ratio = summary["ratio"]
    return 1 / ratio["median"], 1 / ratio["high"], 1 / ratio["low"]


parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--framework", choices=JOBS, default="tensorflow")
args = parser.parse_args()
python, script = JOBS[args.framework]
job = ["--", python, script]
profile, plan, bench = (str(FOLDER / f"{name}.json") for name in ("profile", "plan", "bench"))
diagnosis, page = str(FOLDER / "diagnosis.json"), str(FOLDER / "report.html")

os.chdir(ROOT)
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir()
cpus = two_cpus()
os.sched_setaffinity(0, cpus)

print(f"The demo and its job use CPUs {' and '.join(map(str, sorted(cpus)))} only, of", end=" ")
print(f"{os.cpu_count()} here, as in a container with two CPUs.")
for number, line in enumerate(Path(script).read_text().splitlines(), start=1):
    if line.startswith("THREADS ="):
        print(f"The job's mistake:\n  {script}:{number}: {line}")

heading("How fast is the job? Its own clock says")
before = samples_per_second(run(python, script, "--seconds", "8"))

heading("Why is it slow?")
run(DLTUNE, "diagnose", "--budget", "30s", "--plan", plan, "-o", diagnosis, *job)

# fixes other than thread counts change the ops, so they are applied while ops are measured
others = Path(plan).exists() and other_fixes(json.loads(Path(plan).read_text()))

heading("How long does each op take, with one thread and with two?")
settings = ["--plan", plan] if others else []
run(DLTUNE, "profile", *settings, "--steps", "4", "--top", "3", "-o", profile, *job)

heading("How many threads should the ops get?")
run(DLTUNE, "plan", profile, *(["--into", plan] if others else ["--overwrite", "-o", plan]))

heading("Is it really faster? The settings take turns")
# PyTorch has one thread pool: its default is what is recommended, a thread for each CPU
rivals = ["as-found", "default", *(["recommended"] if args.framework != "torch" else []), "plan"]
turns = ["--rounds", "6", "--seconds-per-turn", "0.5", "--no-one-core"]
run(DLTUNE, "bench", "--plan", plan, "--against", ",".join(rivals), *turns, "-o", bench, *job)

heading("Run the job with the plan, unchanged. Its own clock says")
after = samples_per_second(run(DLTUNE, "run", "--plan", plan, *job, "--seconds", "8"))

run(DLTUNE, "report", diagnosis, profile, plan, bench, "-o", page)

measured = json.loads(Path(bench).read_text())
gain, low, high = speed_up(measured, "plan")
by_hand, by_hand_low, by_hand_high = speed_up(measured, "default")
print(f"\nThe job's own clock: {before:.0f} samples/s as found, {after:.0f} with the plan.")
print(f"The page with all results: {page}\n")
print(f"With the plan: {gain:.1f}x as fast as found (95 % interval {low:.1f} to {high:.1f}).")
print(
    f"With threads set by hand, one for each CPU: {by_hand:.1f}x as fast as found "
    f"(95 % interval {by_hand_low:.1f} to {by_hand_high:.1f})."
)
if low <= 1:
    sys.exit("demo: this gain is not proven; stop other programs and try again")
