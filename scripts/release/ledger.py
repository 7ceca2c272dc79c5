"""List what two revisions define differently: functions, constants, fields, class headers.

    scripts/release/ledger.py OLD [NEW] [--under FOLDER...] [--names]

A definition is compared by its name and its code. File, position and docstrings are ignored, and so
are the folders in imports of this project, so that a moved definition counts as unchanged. C++
files are compared by their lines without comments. With --names only the names of functions are
compared, for tests whose bodies may change. The list is what a reviewer of a move has to read; the
exit status is 0.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator

Definition = tuple[str, str, str]  # kind, qualified name, code


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    done = subprocess.run(
        ["git", *arguments], check=True, capture_output=True, text=True, errors="replace"
    )
    return done.stdout


def sources(
    revision: str, folders: list[str], suffixes: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file of a revision."""
    listing = git("ls-tree", "-r", "--name-only", revision, "--", *folders)
    for name in listing.splitlines():
        if name.endswith(suffixes):
            yield name, git("show", f"{revision}:{name}")


class _WithoutPlace(ast.NodeTransformer):
    """Removes docstrings, and the folders from which this project's names are imported."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if (node.module or "").split(".")[0] == "dltune":
            node.module = "dltune"
        return node

    def _without_docstring(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        body = node.body  # type: ignore[attr-defined]
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            node.body = body[1:]  # type: ignore[attr-defined]
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _without_docstring  # noqa: N815


def definitions(text: str) -> Iterator[Definition]:
    """Yield each function with its decorators, class header, class field and module constant."""
    tree = _WithoutPlace().visit(ast.parse(text))
    yield from _definitions(tree.body, "", "constant")


def _definitions(body: list[ast.stmt], prefix: str, variable: str) -> Iterator[Definition]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield "function", prefix + node.name, ast.dump(node)
                # a function's variables are part of its code
            case ast.ClassDef():
                header = [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]
                yield "class", prefix + node.name, " ".join(map(ast.dump, header))
                yield from _definitions(node.body, f"{prefix}{node.name}.", "field")
            case ast.Assign(targets=targets):
                yield variable, prefix + ", ".join(map(ast.unparse, targets)), ast.dump(node)
            case ast.AnnAssign(target=target):
                yield variable, prefix + ast.unparse(target), ast.dump(node)
            case ast.If(body=then, orelse=otherwise):
                if ast.unparse(node.test) != "TYPE_CHECKING":
                    yield from _definitions(then + otherwise, prefix, variable)
            case ast.Try() | ast.With():
                yield from _definitions(node.body, prefix, variable)


def lines(text: str) -> list[str]:
    """Return the lines of C++ without comments, braces and blank lines."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    bare = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return [line for line in bare if len(line) > 3 and not line.startswith("#include")]


def compare_python(old: str, new: str, folders: list[str], names: bool) -> None:
    """Print the Python definitions of `old` that are gone from `new` or changed there."""
    before: dict[str, list[Definition]] = {}
    for file, text in sources(old, folders, (".py",)):
        before[file] = list(definitions(text))
    now: Counter[Definition] = Counter()
    by_name: defaultdict[tuple[str, str], int] = defaultdict(int)
    for _, text in sources(new, folders, (".py",)):
        for kind, name, code in definitions(text):
            now[kind, name, code] += 1
            by_name[kind, name] += 1
    total = Counter(kind for each in before.values() for kind, _, _ in each)
    print(
        "definitions in",
        old,
        dict(total),
        "and in",
        new,
        dict(Counter(k for k, _, _ in now.elements())),
    )
    count: Counter[str] = Counter()
    for file, each in before.items():
        listed = []
        for kind, name, code in each:
            if names and kind != "function":
                continue
            if not names and now[kind, name, code]:
                now[kind, name, code] -= 1
                continue
            state = "changed" if by_name[kind, name] else "gone"
            if names and state == "changed":
                by_name[kind, name] -= 1
                continue
            listed.append(f"    {state:7} {kind:8} {name}")
            count[state] += 1
        if listed:
            print(file, *listed, sep="\n")
    print(f"gone: {count['gone']}, changed: {count['changed']}")


def compare_cpp(old: str, new: str, folders: list[str]) -> None:
    """Print the lines of C++ that are gone from `new`."""
    suffixes = (".cc", ".h", ".c")
    now = Counter(line for _, text in sources(new, folders, suffixes) for line in lines(text))
    gone = 0
    for file, text in sources(old, folders, suffixes):
        lost = []
        for line in lines(text):
            if now[line]:
                now[line] -= 1
            else:
                lost.append("    " + line)
        gone += len(lost)
        if lost:
            print(file, *lost, sep="\n")
    print(f"C++ lines gone: {gone}, new: {sum(now.values())}")


def main() -> None:
    """Print the ledger of two revisions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--under", nargs="+", default=["dltune"], metavar="FOLDER")
    parser.add_argument("--names", action="store_true", help="compare names of functions only")
    options = parser.parse_args()
    compare_python(options.old, options.new, options.under, options.names)
    if not options.names:
        compare_cpp(options.old, options.new, options.under)


if __name__ == "__main__":
    main()
