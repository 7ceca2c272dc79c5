"""A page read back by the standard library's parser: elements, their attributes, their text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "hr", "img", "link"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    text: str = ""
    path: tuple[str, ...] = ()


@dataclass
class Page(HTMLParser):
    """All elements in order. Raises AssertionError when they are not closed in order."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}: {names}"
        element = Element(tag, dict(attrs), path=tuple(e.name for e in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert [element.name for element in self.open[-1:]] == [tag], f"</{tag}> closes another"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def of(self, name: str) -> list[Element]:
        return [element for element in self.elements if element.name == name]


def parsed(html: bytes) -> Page:
    page = Page()
    page.feed(html.decode())
    page.close()
    assert not page.open, f"never closed: {[e.name for e in page.open]}"
    return page
