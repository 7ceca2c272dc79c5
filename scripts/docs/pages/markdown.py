"""Plain text as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable

WIDTH = 100
_CODE = re.compile(r"(`[^`]*`)")


def escaped(text: str) -> str:
    """Escape what Markdown would take for markup, outside of code."""
    parts = _CODE.split(text)
    # a star between spaces is a product; others are emphasis
    parts[::2] = [re.sub(r"<|(?<= )\*(?= )", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def paragraph(text: str) -> str:
    """One paragraph, wrapped."""
    return _wrapped(escaped(" ".join(text.split())))


def paragraphs(text: str) -> str:
    """The paragraphs of a docstring."""
    return "\n\n".join(paragraph(part) for part in inspect.cleandoc(text).split("\n\n"))


def bullet(text: str) -> str:
    """A list item. The caller escapes."""
    return _wrapped(" ".join(text.split()), "- ", "  ")


def code(text: str) -> str:
    return f"`{text}`"


def block(lines: Iterable[str], language: str = "text") -> str:
    return "\n".join((f"```{language}", *lines, "```"))


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", ":")) else ".")


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
