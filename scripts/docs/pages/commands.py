"""A page for each command, from click."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from dltune import cli, extensions
from pages.markdown import block, bullet, code, escaped, paragraph, sentence

# the words that click shows for types, and those of the reference
_RANGE = r"[^;\]]*(?:x[<>]|<=?x)[^;\]]*"
# what click adds in brackets, and what a help text says of its default in the same way
_NOTE = re.compile(rf"\s*\[(default: [^\]]*|required|{_RANGE})\]$")
_NOTES = re.compile(rf"; (?=required$|{_RANGE}$)")
_TYPES = {"INTEGER RANGE": "N", "FLOAT RANGE": "X", "INTEGER": "N", "FLOAT": "X"}


def pages() -> dict[str, str]:
    root = click.Context(cli.cli, info_name="dltune", **cli.cli.context_settings)
    found = {"commands/index.md": _index(root)}
    for name in cli.cli.list_commands(root):
        found |= {f"commands/{page}.md": text for page, text in _pages(_child(root, name))}
    return found


def _child(context: click.Context, name: str) -> click.Context:
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, name)
    assert command is not None
    # as invoked, with the settings that it inherits
    return click.Context(command, parent=context, info_name=name)


def _children(context: click.Context) -> list[click.Context]:
    """The subcommands; of planners dltune's own, whatever other packages are installed."""
    command = context.command
    if not isinstance(command, click.Group):
        return []
    names = command.list_commands(context)
    if context.info_name == "plan":
        own = {name for each in extensions.own() for name in each.planners}
        names = [name for name in names if name in own]
    return [_child(context, name) for name in names]


def _page(context: click.Context) -> str:
    """The name of its page: its words after `dltune`, joined."""
    return "-".join(context.command_path.split()[1:])


def _pages(context: click.Context) -> Iterator[tuple[str, str]]:
    yield _page(context), _text(context)
    for child in _children(context):
        yield from _pages(child)


def _index(root: click.Context) -> str:
    lines = ["# Commands", "", "Every command prints its options with `--help`.", ""]
    for title, commands in cli.groups().items():
        lines += [f"## {title}", ""]
        for name, text in commands.items():
            child = _child(root, name)
            lines.append(_linked(child, text))
            lines += [f"    {_linked(below)}" for below in _children(child)]
        lines.append("")
    lines += ["## Options", "", *_options(root)]
    return "\n".join(lines)


def _linked(context: click.Context, text: str = "") -> str:
    words = " ".join(context.command_path.split()[1:])
    text = text or context.command.get_short_help_str(300)
    return f"- [{words}]({_page(context)}.md): {escaped(text)}"


def _text(context: click.Context) -> str:
    command = context.command
    first, *rest = _described(command.help or "")
    parts = [f"# {context.command_path}", first]
    parts.append(block([" ".join([context.command_path, *command.collect_usage_pieces(context)])]))
    parts += rest
    if children := _children(context):
        parts += ["## Commands", "\n".join(_linked(child) for child in children)]
    parts += ["## Options", "\n".join(_options(context))]
    if command.epilog:
        parts += _epilog(command.epilog)
    return "\n\n".join(parts)


def _described(text: str) -> list[str]:
    """The paragraphs of a help text; those that click must not wrap are blocks."""
    described = []
    for part in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        lines = part.splitlines()
        if lines and lines[0].strip() == "\b":
            described.append(block(lines[1:]))
        elif part.strip():
            described.append(paragraph(part))
    return described or [""]


def _epilog(text: str) -> list[str]:
    """Its examples as a block under a heading."""
    lines = [line.strip() for line in text.replace("\b", "").splitlines()]
    titles = [line.rstrip(":") for line in lines if line.endswith(":")]
    examples = [f"$ {line}" for line in lines if line and not line.endswith(":")]
    return [f"## {titles[0] if titles else 'Example'}", block(examples, "console")]


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield bullet(_option(parameter, context))


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    names, text = record
    for shown, word in _TYPES.items():
        names = re.sub(rf"(?<= ){shown}$", word, names)
    text = " ".join(text.split())
    notes: list[str] = []
    while match := _NOTE.search(text):
        notes[:0] = [_note(part, option) for part in _NOTES.split(match[1])]
        text = text[: match.start()]
    described = [escaped(sentence(text))] if text else []
    return " ".join([f"{code(names)}:", *described, *notes])


def _note(part: str, option: click.Option) -> str:
    if part == "required":
        return "Required."
    if part.startswith("default: "):
        value = part.removeprefix("default: ")
        return f"Default: {escaped(value) if ' ' in value else code(value)}."
    kind = option.type
    assert isinstance(kind, click.IntRange | click.FloatRange), part
    low, high = kind.min, kind.max
    if low is None or high is None:
        return f"At most {high:g}." if low is None else f"At least {low:g}."
    return f"From {low:g} to {high:g}."
