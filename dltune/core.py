"""What dltune's core registers: all that belongs to no system, with the hooks of frameworks."""

from __future__ import annotations

from pathlib import Path

from dltune.extensions import Command, DocumentKind, Extension, Hook

START, MEASURE, DECIDE = "Start here", "Measure", "Decide"
READ, KEEP = "Read", "Keep it fast"


_FRAMEWORKS = Path(__file__).parent / "frameworks"
# a script that imports Keras alone may use it on another framework
_KERAS = ("tensorflow", "keras", "tf_keras")


def _hook(framework: str, module: str, *packages: str, settings: tuple[str, ...] = ()) -> Hook:
    return Hook(module, (str(_FRAMEWORKS / framework / "inject"),), packages, settings)


def _command(group: str, name: str, summary: str) -> Command:
    return Command(group, summary, f"dltune.cli.{name}:command")


EXTENSION = Extension(
    name="core",
    commands={
        "diagnose": _command(
            START, "diagnose", "Find out why training is slow, and how to fix it."
        ),
        "tune": _command(START, "tune", "Find the settings under which a job runs fastest."),
        "run": _command(START, "run", "Run an unmodified job under a plan."),
        "profile": _command(
            MEASURE, "profile", "Measure a training step op by op, at each thread count."
        ),
        "bench": _command(MEASURE, "bench", "Compare a plan with other settings of a job."),
        "doctor": _command(MEASURE, "doctor", "Check what dltune can measure on this machine."),
        "plan": _command(DECIDE, "plan", "Make a plan from a profile: threads, memory, ranks."),
        "model": _command(DECIDE, "model", "Train a regression model that predicts op times."),
        "show": _command(READ, "show", "Print a saved profile."),
        "report": _command(READ, "report", "Write an HTML page, or a timeline for Perfetto."),
        "compare": _command(READ, "compare", "Compare two profiles, or two benchmark results."),
        "gate": _command(KEEP, "gate", "Fail a build when a command has become slower."),
    },
    planners={
        "threads": "dltune.plan.threads.planner:PLANNER",
        "settings": "dltune.plan.settings.planner:PLANNER",
    },
    rules=(
        "dltune.findings.memory_use",
        "dltune.findings.cores",
        "dltune.findings.python",
        "dltune.findings.data",
        "dltune.findings.ops",
    ),
    documents={
        "dltune.profile": DocumentKind(
            "dltune.schemas.profile:load",
            ("ops",),
            "dltune.report.kinds.profile:view",
            "dltune.compare.profiles:compare_files",
        ),
        "dltune.plan": DocumentKind(
            "dltune.plan.plan:load_plan",
            # of a plan whose sections list nothing (`Planner.tables`), such as one of memory
            ("document",),
            "dltune.report.kinds.plan:view",
        ),
        "dltune.bench": DocumentKind(
            "dltune.schemas.bench:load",
            ("settings",),
            "dltune.report.kinds.bench:view",
            "dltune.compare.benches:compare_files",
        ),
        "dltune.io": DocumentKind(
            "dltune.schemas.io:load", ("files", "strided"), "dltune.watch.files.io_view:view"
        ),
        "dltune.tune": DocumentKind("dltune.schemas.bench:load_tune", ("trials",)),
        "dltune.gate": DocumentKind(
            "dltune.schemas.gate:load", ("verdicts",), "dltune.report.kinds.gate:view"
        ),
        "dltune.gate-baseline": DocumentKind("dltune.schemas.gate:load_baseline", ("measured",)),
        "dltune.gate-history": DocumentKind("dltune.gate.verdicts:load", ("points",)),
        "dltune.graph": DocumentKind("dltune.schemas.graph:load", ("nodes",)),
        "dltune.machine": DocumentKind("dltune.schemas.machine:load", ("cores",)),
        "dltune.diagnosis": DocumentKind(
            "dltune.schemas.diagnosis:load", ("findings",), "dltune.report.kinds.diagnosis:view"
        ),
        "dltune.roofs": DocumentKind("dltune.schemas.machine:load_roofs", ("peaks",)),
    },
    settings=(
        "dltune.plan.settings.space.training:BATCH_NORM",
        "dltune.plan.settings.space.training:FUSED_OPTIMIZER",
        "dltune.plan.settings.space.training:CHANNELS_LAST",
        "dltune.plan.settings.space.resources:THREADS",
        "dltune.plan.settings.space.training:ONEDNN_PRIMITIVES",
        "dltune.plan.settings.space.training:ONEDNN",
        "dltune.plan.settings.space.resources:ALLOCATOR",
        "dltune.plan.settings.space.resources:OPENMP",
        "dltune.plan.settings.space.resources:OPENMP_WAIT",
        "dltune.plan.settings.space.training:INPUT_WORKERS",
        "dltune.plan.settings.space.training:INPUT_PREFETCH",
        "dltune.plan.settings.space.training:INPUT_THREADS",
        "dltune.plan.settings.space.training:STEPS_PER_EXECUTION",
        "dltune.plan.settings.space.resources:AFFINITY",
        "dltune.plan.settings.space.training:ONEDNN_CALLER",
        "dltune.plan.settings.space.training:XLA",
        "dltune.plan.settings.space.training:JIT_COMPILE",
        "dltune.plan.settings.space.training:DENORMALS",
        "dltune.plan.settings.space.training:ONEDNN_MATH",
        "dltune.plan.settings.space.training:FLOAT32_PRECISION",
        "dltune.plan.settings.space.training:PRECISION",
        "dltune.plan.settings.space.training:INPUT_ORDER",
    ),
    hooks=(
        _hook("tensorflow", "_dltune_tensorflow", "tensorflow"),
        _hook("tensorflow", "_dltune_batch_norm", *_KERAS, settings=("batch_norm",)),
        _hook(
            "tensorflow",
            "_dltune_keras",
            *_KERAS,
            settings=("jit_compile", "steps_per_execution", "precision"),
        ),
        _hook(
            "tensorflow",
            "_dltune_input",
            "tensorflow",
            settings=("input_threads", "input_prefetch", "input_order"),
        ),
        _hook("pytorch", "_dltune_torch", "torch"),
        _hook(
            "pytorch",
            "_dltune_torch_settings",
            "torch",
            settings=(
                "jit_compile",
                "precision",
                "channels_last",
                "float32_precision",
                "denormals",
            ),
        ),
        _hook(
            "pytorch",
            "_dltune_torch_loader",
            "torch",
            settings=("input_prefetch", "input_workers"),
        ),
        _hook("pytorch", "_dltune_torch_optimizer", "torch", settings=("fused_optimizer",)),
    ),
)
