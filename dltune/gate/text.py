"""Names and messages come from strangers' code: what of them may reach a terminal or a file."""

from __future__ import annotations

LONGEST = 200


def visible(text: str, longest: int = LONGEST) -> str:
    """`text` on one line without what is not seen: controls, direction marks and other formats,
    separators but the space, halves of surrogate pairs and unassigned characters become
    escapes; cut to `longest`."""
    shown = "".join(c if c.isprintable() else _escaped(c) for c in text[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
