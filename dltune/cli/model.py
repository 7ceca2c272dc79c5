"""`dltune model`: train a regression model of op times, and test it on other profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.cli.options import PATH, example
from dltune.cli.results import print_json, require_apart
from dltune.simulate.regression import DEFAULT, NAMES

if TYPE_CHECKING:
    from dltune.simulate.regression import Trained

_PROFILES = click.argument("profiles", nargs=-1, required=True, type=PATH, metavar="PROFILE...")


@click.group(epilog=example("dltune model train a.json b.json -o op-times.skops"))
def command() -> None:
    """Train and test a regression model of op times.

    The model predicts the time of an op at every thread count from measurements at a few thread
    counts. `dltune plan --model` uses it.
    """


@command.command(epilog=example("dltune model train a.json b.json -o op-times.skops"))
@_PROFILES
@click.option(
    "-o", "--output", type=PATH, required=True, metavar="FILE", help="Write the model to FILE."
)
@click.option(
    "--regressor",
    type=click.Choice(NAMES),
    default=DEFAULT,
    show_default=True,
    metavar="NAME",
    help=f"Train this regressor of scikit-learn: {', '.join(NAMES)}.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Predict from measurements at this many thread counts, spread evenly.",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Train on seconds, not on logarithms of seconds.",
)
@click.option("--overwrite", is_flag=True, help="Replace the model if it exists.")
def train(
    profiles: tuple[Path, ...],
    output: Path,
    regressor: str,
    samples: int,
    raw: bool,
    overwrite: bool,
) -> None:
    """Train a model for each thread count and placement on the ops of the profiles.

    The profiles must come from one machine and one version of the framework.
    """
    from dltune.base.documents import claim
    from dltune.schemas import profile as documents
    from dltune.simulate.regression import train as trained_on
    from dltune.simulate.regression_file import encode, require_same

    require_apart(profiles, [output])
    with claim(output, overwrite=overwrite) as file:
        loaded = [documents.load(path) for path in profiles]
        machine = require_same(loaded, profiles)
        trained = trained_on(
            loaded, machine, regressor=regressor, samples=samples, logarithms=not raw
        )
        file.write_bytes(encode(trained, loaded))
    _show_features(trained)
    click.echo(f"\nmodel written to {output}; next: dltune model evaluate {output} PROFILE...")


@command.command(epilog=example("dltune model evaluate op-times.skops c.json"))
@click.argument("model", type=PATH, metavar="FILE")
@_PROFILES
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON.")
def evaluate(model: Path, profiles: tuple[Path, ...], as_json: bool) -> None:
    """Test a model on the ops of other profiles.

    Prints the accuracy (1 minus the mean relative error) and R2 for each thread count and
    placement.
    """
    from dltune.base.formatting import Table, columns
    from dltune.cli import terminal
    from dltune.schemas import profile as documents
    from dltune.simulate.regression import evaluated
    from dltune.simulate.regression_file import load, require_fits

    header, trained = load(model)
    loaded = [documents.load(path) for path in profiles]
    for profile, path in zip(loaded, profiles, strict=True):
        require_fits(header, profile, model, path)
    found = evaluated(trained, loaded)
    if as_json:
        rows = [
            {"threads": n, "placement": p, "sampled": (n, p) in header.samples, **s._asdict()}
            for (n, p), s in found.items()
        ]
        print_json({"regressor": header.regressor, "cases": rows})
        return
    heads = columns(">threads", "placement", ">accuracy", ">R2", ">ops", "role")
    scores = [
        (
            str(threads),
            placement,
            f"{score.accuracy:.1%}",
            f"{score.r2:.3f}",
            str(score.ops),
            "input" if (threads, placement) in header.samples else "",
        )
        for (threads, placement), score in found.items()
    ]
    title = f"{header.regressor}, trained on {header.ops} ops"
    terminal.show(Table(title, heads, scores), gap=False)


def _show_features(trained: Trained) -> None:
    """Show the trained models, their features, and the divisor of events."""
    names = trained.layout.names
    click.echo(f"{trained.regressor}, trained on {trained.ops} ops")
    for (threads, placement), model in trained.models.items():
        chosen = ", ".join(names[column] for column in model.columns)
        error = trained.errors[threads, placement]
        click.echo(
            f"{threads} {placement}: {error:.1%} median error on held-out ops; features: {chosen}"
        )
    if trained.layout.events:
        click.echo(f"event counts are divided by {trained.layout.per}")
    else:
        click.echo(
            "no event was counted for every op: the features are only times and amounts of work"
        )
