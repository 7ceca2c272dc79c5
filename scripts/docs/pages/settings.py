"""The page of settings, from the space that `dltune tune` searches."""

from __future__ import annotations

from dltune.frameworks.capabilities import framework
from dltune.plan.settings.setting import Setting
from dltune.plan.settings.space import SPACE, joins
from pages.markdown import bullet, code, escaped, paragraph

_INTRODUCTION = """
Settings outside the ops of an unmodified job. `dltune tune` tries them, a plan's section `settings`
names the chosen settings, and `dltune run` applies them. dltune keeps a setting that the script,
the command or the environment already sets, and reports it as the user's. There are two exceptions:
thread counts replace those of the script and `OMP_NUM_THREADS`, and a plan of `dltune diagnose`
replaces variables of the environment. Settings that apply to another framework are skipped.
[Settings](../explanation/settings.md) explains how they work.
"""
_CLASSES = {
    "exact": "Results stay the same, bit for bit, at equal thread counts.",
    "rounding": "Results can differ by rounding, as with another thread count.",
    "lossy": "The precision or the computation changes. `dltune tune` tries these settings only "
    "with `--allow lossy`.",
}


def pages() -> dict[str, str]:
    parts = ["# Settings", paragraph(_INTRODUCTION), "Each setting has a class:"]
    parts.append("\n".join(bullet(f"**{kind}**: {text}") for kind, text in _CLASSES.items()))
    for setting in sorted(SPACE, key=lambda setting: setting.name):
        parts += [f"## {setting.name}", paragraph(setting.what), "\n".join(_lines(setting))]
    return {"settings.md": "\n\n".join(parts)}


def _lines(setting: Setting) -> list[str]:
    jobs = f"{framework(setting.framework).title} only" if setting.framework else "all"
    lines = [f"Class: {setting.kind}. Frameworks: {jobs}."]
    if setting.helps:
        lines.append(f"Helps: {escaped(setting.helps)}")
    lines += [f"{code(value)}: {escaped(text)}." for value, text in setting.meanings.items()]
    if others := joins(setting):
        lines.append(f"Tried together with: {', '.join(map(_linked, others))}.")
    return [bullet(line) for line in [*lines, f"Source: {escaped(setting.source)}."]]


def _linked(name: str) -> str:
    return f"[{name}](#{name})"
