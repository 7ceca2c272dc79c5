"""Hooks of the site: folders in `nav`, and no page that loads anything from outside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

# a tag of a page that makes a browser load something, and the address
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object|"
    r"link(?![^>]*\brel=\"?(?:canonical|next|prev)\b))\b[^>]*?"
    r"\b(?:src|href|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace FOLDER/* in the navigation by the folder's pages."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads something from outside."""
    if match := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads {match[1]}: keep the file in docs/")
    return output


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(below, docs) for title, below in entry.items()}
    if not isinstance(entry, list):
        return entry
    entries: list[Any] = []
    for item in entry:
        if isinstance(item, str) and item.endswith("/*"):
            entries += _pages(docs / item.removesuffix("/*"), docs)
        else:
            entries.append(_expanded(item, docs))
    return entries


def _pages(folder: Path, docs: Path) -> list[dict[str, str]]:
    """The pages of a folder by title, index.md first. Commands go without the word dltune."""
    pages = sorted(folder.glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
    return [{_title(page): page.relative_to(docs).as_posix()} for page in pages]


def _title(page: Path) -> str:
    match = re.search(r"^# (?:dltune (?=\w))?(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else page.stem
