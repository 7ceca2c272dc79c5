"""`dltune model`: train a regression model of op times, and test it on other profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.cli.results import print_json, require_apart
from dltune.model.regression.regressors import DEFAULT, NAMES

if TYPE_CHECKING:
    from dltune.model.regression.train import Trained

_PROFILES = click.argument(
    "profiles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PROFILE..."
)


@click.group()
def command() -> None:
    """The paper's first model: predict an op's time at every thread count from a few of them."""


@command.command()
@_PROFILES
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE")
@click.option("--regressor", type=click.Choice(NAMES), default=DEFAULT, show_default=True)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Thread counts that a prediction starts from, spread evenly.",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Train on plain seconds, as the paper did, not on logarithms.",
)
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def train(
    profiles: tuple[Path, ...],
    output: Path,
    regressor: str,
    samples: int,
    raw: bool,
    overwrite: bool,
) -> None:
    """Train a model for each thread count and placement on the ops of the profiles."""
    from dltune.documents import profile as documents
    from dltune.documents.files import claim
    from dltune.model.regression.file import encode, require_same
    from dltune.model.regression.train import train as trained_on

    require_apart(profiles, [output])
    with claim(output, overwrite=overwrite) as file:
        loaded = [documents.load(path) for path in profiles]
        machine = require_same(loaded, profiles)
        trained = trained_on(
            loaded, machine, regressor=regressor, samples=samples, logarithms=not raw
        )
        file.write_bytes(encode(trained, loaded))
    _show_features(trained)
    click.echo(f"\nwritten to {output}; next: dltune model evaluate {output} PROFILE...")


@command.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="FILE")
@_PROFILES
@click.option("--json", "as_json", is_flag=True, help="The scores as JSON.")
def evaluate(model: Path, profiles: tuple[Path, ...], as_json: bool) -> None:
    """Test a model on the ops of other profiles: the paper's accuracy and R2, case by case."""
    from dltune.cli import tables
    from dltune.documents import profile as documents
    from dltune.model.regression.file import load, require_fits
    from dltune.model.regression.train import evaluated
    from dltune.tables import Table, columns

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
    heads = columns(">threads", "placement", ">accuracy", ">R2", ">ops", "")
    scores = [
        (
            str(threads),
            placement,
            f"{score.accuracy:.1%}",
            f"{score.r2:.3f}",
            str(score.ops),
            "a sample" if (threads, placement) in header.samples else "",
        )
        for (threads, placement), score in found.items()
    ]
    title = f"{header.regressor}, trained on {header.ops} ops"
    tables.show(Table(title, heads, scores), gap=False)


def _show_features(trained: Trained) -> None:
    """What was trained, on which features; what events were divided by."""
    names = trained.layout.names
    click.echo(f"{trained.regressor}, trained on {trained.ops} ops")
    for (threads, placement), model in trained.models.items():
        chosen = ", ".join(names[column] for column in model.columns)
        error = trained.errors[threads, placement]
        click.echo(f"{threads} {placement}: from {chosen}; off by {error:.1%} (median, left-out)")
    if trained.layout.events:
        click.echo(f"events are divided by {trained.layout.per}")
    else:
        click.echo("no events were counted for all ops: features are times and work alone")
