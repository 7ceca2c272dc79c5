"""A page for each kind of document, from its structs and their docstrings.

A docstring is a summary, further paragraphs, and a line "`field`: text" for each field, or for
several fields that belong together.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dltune import extensions
from dltune.gate import verdicts
from dltune.plan import planner
from dltune.schemas import bench, diagnosis, gate, graph, io, machine, plan, profile
from pages.markdown import block, bullet, code, escaped, paragraph, paragraphs, sentence

Struct = type[msgspec.Struct]

EXAMPLES = Path(__file__).parents[1] / "examples"
_FIELD = re.compile(r"((?:`\w+`(?:, )?)+): (.*)", re.DOTALL)
# fields that mean the same in every document
_COMMON = {
    "schema": "kind and version of the document.",
    "created": "time of writing (ISO 8601).",
    "dltune": "version of dltune.",
    "command": "command line of the job.",
    "partial": "reason why the document is incomplete; null if it is complete.",
}
_BASIC = {str: "text", int: "integer", float: "number", bool: "boolean", Any: "any"}
_BASIC[type(None)] = "null"


@dataclass(frozen=True)
class Page:
    """A document: what it is called, its schema and struct, and the module that describes it."""

    title: str
    schema: str
    root: Struct
    module: types.ModuleType
    sections: dict[str, Struct] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.schema.partition(".")[2].partition("/")[0]


def _sections() -> dict[str, Struct]:
    own = [name for each in extensions.own() for name in each.planners]
    return {name: planner.load_planner(name).section for name in own}


def documents() -> tuple[Page, ...]:
    """The documents in the order of the reference."""
    return (
        Page("Profile", profile.SCHEMA, profile.Profile, profile),
        Page("Plan", plan.SCHEMA, plan.Plan, plan, _sections()),
        Page("Diagnosis", diagnosis.SCHEMA, diagnosis.Diagnosis, diagnosis),
        Page("Bench", bench.SCHEMA, bench.Bench, bench),
        Page("Tune", bench.TUNE_SCHEMA, bench.Tune, bench),
        Page("Io", io.SCHEMA, io.Io, io),
        Page("Gate", gate.RESULT_SCHEMA, gate.Result, gate),
        Page("Gate baseline", gate.BASELINE_SCHEMA, gate.Baseline, gate),
        Page("Gate history", verdicts.SCHEMA, verdicts.Entry, verdicts),
        Page("Machine", machine.SCHEMA, machine.Machine, machine),
        Page("Roofs", machine.ROOFS_SCHEMA, machine.Roofs, machine),
        Page("Graph", graph.SCHEMA, graph.Graph, graph),
        *_of_systems(),
    )


def _of_systems() -> Iterator[Page]:
    for system in extensions.own():
        for name, kind in system.documents.items() if system.name != "core" else ():
            module = importlib.import_module(kind.load.partition(":")[0])
            title = name.removeprefix("dltune.").replace("-", " ").capitalize()
            root = getattr(module, title.title().replace(" ", ""))
            schemas = (value for value in vars(module).values() if isinstance(value, str))
            (schema,) = (value for value in schemas if value.startswith(f"{name}/"))
            yield Page(title, schema, root, module)


def pages() -> dict[str, str]:
    written = documents()
    homes = _homes(written)
    found = {
        f"formats/{page.name}.md": _Text(page, homes, _shared(written)).text() for page in written
    }
    return {"formats/index.md": _index(written)} | found


def _index(written: tuple[Page, ...]) -> str:
    parts = ["# Document formats"]
    parts.append(
        paragraph(
            "The commands of dltune exchange JSON documents. [Documents](../../explanation/"
            "formats.md) explains what they have in common and how to read them as tables."
        )
    )
    parts.append(
        "\n".join(
            bullet(
                f"[{page.title}]({page.name}.md) `{page.schema}`: {escaped(_about(page, written))}"
            )
            for page in written
        )
    )
    parts.append("[Other outputs](outputs.md) describes outputs without a page of their own.")
    return "\n\n".join(parts)


def _about(page: Page, written: tuple[Page, ...]) -> str:
    """A sentence about it: of its module, or of its struct if the module has several documents."""
    if page.module in _shared(written):
        return re.split(r"(?<=\.) ", _documented(page.root)[0][0])[0]
    first = inspect.cleandoc(page.module.__doc__ or "").split("\n\n")[0]
    return sentence(re.split(r"(?<=\.) ", " ".join(first.partition(": ")[2].split()))[0])


def _shared(written: tuple[Page, ...]) -> set[types.ModuleType]:
    """The modules whose docstring is not of one document."""
    modules = [page.module for page in written]
    return {module for module in modules if modules.count(module) > 1} | {verdicts}


@dataclass(frozen=True)
class _Home:
    """Where a struct is described: the page and the heading there."""

    page: str
    heading: str

    def link(self, name: str, here: str) -> str:
        anchor = re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")
        return f"[{name}]({'' if self.page == here else f'{self.page}.md'}#{anchor})"


def _homes(written: tuple[Page, ...]) -> dict[Struct, _Home]:
    """Each struct is described once: with its document, or in the first one that has it."""
    homes = {page.root: _Home(page.name, "Fields") for page in written}
    roots = [(page, "", page.root) for page in written]
    for page in written:
        for name, section in page.sections.items():
            homes[section] = _Home(page.name, f"Section {name}")
            roots.append((page, name, section))
    # at home where its module is, else in the first document that has it
    for of_module in (True, False):
        for page, name, root in roots:
            for struct in _below(root):
                if struct not in homes and (not of_module or struct.__module__ == root.__module__):
                    homes[struct] = _Home(page.name, _heading(struct, page, name, homes))
    return homes


def _heading(struct: Struct, page: Page, section: str, homes: dict[Struct, _Home]) -> str:
    """Its name, which another struct of the page may have already."""
    headings = {home.heading for home in homes.values() if home.page == page.name}
    name = struct.__name__
    return (
        f"{name} ({section or struct.__module__.rpartition('.')[2]})" if name in headings else name
    )


def _below(root: Struct) -> Iterator[Struct]:
    """The structs that a struct's fields have, and theirs, in the order of the fields."""
    for hint in _hints(root).values():
        for struct in _structs(hint):
            yield struct
            yield from _below(struct)


def _hints(struct: Struct) -> dict[str, Any]:
    hints = typing.get_type_hints(struct)
    return {name: hints[name] for name in struct.__struct_fields__}


def _structs(hint: Any) -> Iterator[Struct]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for argument in typing.get_args(hint):
        yield from _structs(argument)


def _documented(struct: Struct) -> tuple[list[str], list[tuple[tuple[str, ...], str]]]:
    """The paragraphs of its docstring, and the fields' lines: names and text."""
    prose: list[str] = []
    lines: list[tuple[tuple[str, ...], str]] = []
    for part in inspect.cleandoc(struct.__doc__ or "").split("\n\n"):
        if not _FIELD.match(part):
            prose.append(" ".join(part.split()))
            continue
        for line in re.split(r"\n(?=`)", part):
            match = _FIELD.fullmatch(line)
            assert match, f"{struct.__qualname__}: {line!r} describes no field"
            names = tuple(re.findall(r"`(\w+)`", match[1]))
            lines.append((names, " ".join(match[2].split())))
    described = {name for names, _ in lines for name in names}
    fields = struct.__struct_fields__
    lines = [*(((n,), _COMMON[n]) for n in fields if n in _COMMON and n not in described), *lines]
    described |= _COMMON.keys() & set(fields)
    if different := described ^ set(fields):
        raise SystemExit(
            f"{struct.__module__}.{struct.__qualname__}: the docstring and the fields "
            f"differ: {', '.join(sorted(different))}"
        )
    return prose, lines


@dataclass(frozen=True)
class _Text:
    """The text of a page."""

    page: Page
    homes: dict[Struct, _Home]
    shared: set[types.ModuleType]

    def text(self) -> str:
        page = self.page
        parts = [f"# {page.title}", f"Schema: `{page.schema}`"]
        if page.module in self.shared:
            parts += [*map(paragraph, _documented(page.root)[0]), "## Fields"]
            parts += self._fields(page.root)
        else:
            parts += [paragraphs(page.module.__doc__ or ""), "## Fields"]
            parts += self._struct(page.root)
        written = {page.root, *page.sections.values()}
        parts += self._nested(page.root, "##", written)
        for name, section in page.sections.items():
            described = "\n\n".join(_documented(section)[0])
            if (module := inspect.getmodule(section)) is not page.module:
                described = module.__doc__ or ""
            parts += [f"## Section {name}", paragraphs(described), *self._fields(section)]
            parts += self._nested(section, "###", written)
        example = EXAMPLES / f"{page.name}.json"
        if example.is_file():
            parts += ["## Example", block(example.read_text().strip().splitlines(), "json")]
        return "\n\n".join(parts)

    def _nested(self, root: Struct, level: str, written: set[Struct]) -> Iterator[str]:
        """The structs below a root whose home is this page, as far as they are not written yet."""
        for struct in _below(root):
            if struct not in written and self.homes[struct].page == self.page.name:
                written.add(struct)
                yield f"{level} {self.homes[struct].heading}"
                yield from self._struct(struct)

    def _struct(self, struct: Struct) -> Iterator[str]:
        yield from map(paragraph, _documented(struct)[0])
        yield from self._fields(struct)

    def _fields(self, struct: Struct) -> Iterator[str]:
        if struct.__struct_config__.array_like:
            yield "It is a list of these values, in this order:"
        order = struct.__struct_fields__
        lines = sorted(_documented(struct)[1], key=lambda line: order.index(line[0][0]))
        yield "\n".join(bullet(self._line(struct, names, text)) for names, text in lines)

    def _line(self, struct: Struct, names: tuple[str, ...], text: str) -> str:
        hints, defaults = _hints(struct), _defaults(struct)
        kinds = [self._type(hints[name]) for name in names]
        if len(set(kinds)) == 1:
            head = f"{', '.join(map(code, names))} ({kinds[0]})"
        else:
            pairs = zip(names, kinds, strict=True)
            head = ", ".join(f"{code(name)} ({kind})" for name, kind in pairs)
        given = {name: defaults[name] for name in names if name in defaults}
        # what is empty by default needs no more words
        notes = {f"Default: {code(value)}." if value else "Optional." for value in given.values()}
        if given and len(given) < len(names):
            notes = {f"Optional: {', '.join(map(code, given))}."}
        return " ".join([f"{head}: {escaped(text)}", *sorted(notes)])

    def _type(self, hint: Any) -> str:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint in _BASIC:
            return _BASIC[hint]
        if origin is typing.Literal:
            return " or ".join(code(f'"{value}"') for value in arguments)
        if origin in (typing.Union, types.UnionType):
            return " or ".join(self._type(argument) for argument in arguments)
        if origin is tuple and arguments[-1] is Ellipsis:
            return f"list of {self._type(arguments[0])}"
        if origin is tuple:
            return f"list: {', '.join(self._type(argument) for argument in arguments)}"
        if origin is dict:
            return f"object of {self._type(arguments[1])} by name"
        return self.homes[hint].link(hint.__name__, self.page.name)


def _defaults(struct: Struct) -> dict[str, str]:
    """The default of each field that has one, as JSON; empty for null, an empty list or text."""
    fields = msgspec.structs.fields(struct)
    found = {f.name: f.default for f in fields if f.default is not msgspec.NODEFAULT}
    found |= {
        f.name: f.default_factory() for f in fields if f.default_factory is not msgspec.NODEFAULT
    }
    encoded = {name: msgspec.json.encode(value).decode() for name, value in found.items()}
    return {
        name: "" if text in ("null", "[]", "{}", '""') else text for name, text in encoded.items()
    }
