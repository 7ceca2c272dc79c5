"""Make names and messages from other people's code safe for a terminal or a file."""

from __future__ import annotations

LONGEST = 200


def visible(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, in characters that can be seen and written in order.

    Controls, direction marks and other formats, separators but the space, halves of surrogate
    pairs and unassigned characters become escapes; a text longer than `longest` loses its middle.
    """
    if len(text) > longest:
        head = longest * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
