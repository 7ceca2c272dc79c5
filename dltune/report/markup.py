"""HTML that can only be made escaped: text becomes markup in `tag` and in `rendered`, and nowhere
else.

Names of ops and paths come from other people's jobs. What they hold is shown, never obeyed: markup
is escaped, control characters and marks that turn the direction of writing are written out, as
`\u202e`, and very long names are cut in the middle.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from dltune.base.formatting import visible

if TYPE_CHECKING:
    import jinja2

__all__ = ["Markup", "data", "escaped", "joined", "rendered", "short", "tag"]

# characters of a text that are shown at most, and of a name
LONGEST = 4000
NAME = 240


def short(name: str) -> str:
    """A name as it is shown in tables and titles."""
    return visible(name, NAME)


def escaped(value: object) -> Markup:
    """As HTML: markup as it is, all else as text."""
    return value if isinstance(value, Markup) else escape(visible(str(value), LONGEST))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is written class, `view_box` viewBox, `data_x` data-x."""
    names = (_NAMES.get(key) or key.rstrip("_").replace("_", "-") for key in attributes)
    written = (f' {n}="{escaped(v)}"' for n, v in zip(names, attributes.values(), strict=True))
    return Markup(f"<{name}{''.join(written)}>{joined(children)}</{name}>")


_NAMES = {"view_box": "viewBox", "preserve_aspect_ratio": "preserveAspectRatio"}


def joined(children: object) -> Markup:
    """Children one after the other; lists of them are opened, None is nothing."""
    if children is None:
        return Markup("")
    if isinstance(children, (list, tuple)):
        return Markup().join(joined(child) for child in children)
    return escaped(children)


@functools.cache
def _templates() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("dltune.report", "assets"),
        autoescape=True,
        finalize=escaped,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def rendered(template: str, **values: object) -> Markup:
    """A template of `assets/`, in which every value that is not markup is shown as text."""
    return Markup(_templates().get_template(template).render(values))


def data(identifier: str, content: bytes) -> Markup:
    """JSON for the page's script, which no content can end or leave."""
    text = content.decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f'<script type="application/json" id="{escaped(identifier)}">{text}</script>')
