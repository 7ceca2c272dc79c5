"""How training data was read: what was found, the files, the threads, or a file in every way."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.documents.io import Experiment, Io, Measured, Watch, load
from dltune.planners.shown import Finding
from dltune.report.charts.bars import bar
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.section import Context, Loaded, Section, Shown
from dltune.report.table import table
from dltune.tables import Cell

__all__ = ["load", "show"]

MIB = 2**20
THREADS = 100  # in the table


def show(loaded: Loaded, _: Context) -> Shown:
    io = loaded.document
    assert isinstance(io, Io)
    at = loaded.prefix
    sections = [Section(f"{at}-findings", "Reading data", _findings(io))]
    if io.watch:
        sections += _watch(io.watch, at)
    if io.experiment:
        sections += _experiment(io.experiment, at)
    return Shown(
        title=f"I/O {loaded.path.name}",
        head=[
            ("subject", io.subject),
            *((s.mount, f"{s.kind} on {s.source}") for s in io.storage),
            ("made", f"{io.created}, dltune {io.dltune}"),
        ],
        sections=sections,
        # a sentence of its own beside those on ops: reading is another cause
        findings=[Finding(2, _sentence(finding.said)) for finding in io.findings[:1]],
        remarks=[
            *([] if io.partial is None else [f"This report is partial: {io.partial}."]),
            *io.unseen,
        ],
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _findings(io: Io) -> Markup:
    if not io.findings:
        return tag("p", "Nothing was found to be wrong.")
    return tag(
        "ol",
        *(
            tag(
                "li",
                tag("p", tag("b", _sentence(f.said)), " ", _sentence(f.evidence)),
                tag("p", _sentence(f.advice)) if f.advice else None,
            )
            for f in io.findings
        ),
    )


def _watch(watch: Watch, prefix: str) -> list[Section]:
    files = [
        (
            short(file.path),
            file.format,
            _mib(file.size),
            _mib(file.asked),
            _mib(file.storage_bytes),
            "" if file.amplification is None else f"{file.amplification:.2f}",
            _count(file.major),
            _count(file.minor),
            file.pattern.kind,
        )
        for file in watch.files
    ]
    heads = (
        *("file", "format", ">MiB", ">asked MiB", ">from storage MiB", ">amplification"),
        *(">major faults", ">minor faults", "pattern"),
    )
    found = [Section(f"{prefix}-files", "Data files", table(f"{prefix}-files-table",
             f"Data files over {watch.seconds:.1f} s", heads, files))]  # fmt: skip
    threads = sorted(
        ((t.waiting, p.pid, t) for p in watch.processes for t in p.threads),
        key=lambda entry: -entry[0],
    )
    rows = [
        (
            str(pid),
            str(thread.tid),
            short(thread.name),
            f"{thread.waiting:.3f}",
            bar(thread.waiting / thread.seconds if thread.seconds > 0 else 0.0),
            f"{thread.cpu:.3f}",
            f"{thread.kernel:.3f}",
            "" if thread.sleep_share is None else f"{thread.sleep_share:.0%}",
            str(thread.voluntary),
            str(thread.involuntary),
        )
        for _, pid, thread in threads[:THREADS]
    ]
    columns = (
        *(">pid", ">tid", "thread", ">waiting s", "", ">CPU s", ">in the kernel s"),
        *(">of reading asleep", ">voluntary", ">involuntary"),
    )
    caption = "Threads, by their time asleep for storage"
    body = [table(f"{prefix}-threads-table", caption, columns, rows, sorted_by=3)]
    if watch.lines:
        lines = [(short(line.where), f"{line.share:.0%}", str(line.looks)) for line in watch.lines]
        caption = "Lines of Python that waited for storage"
        looked = ("line", ">share of looks", ">looks")
        body.append(table(f"{prefix}-waits-table", caption, looked, lines))
    if watch.pressure:
        pressure = [
            (short(p.of), p.resource, f"{p.some:.1%}", "" if p.full is None else f"{p.full:.1%}")
            for p in watch.pressure
        ]
        waited = ("of", "resource", ">some waited", ">all waited")
        caption = "Pressure: the share of time in which tasks waited"
        body.append(table(f"{prefix}-pressure-table", caption, waited, pressure))
    found.append(Section(f"{prefix}-threads", "Waiting", joined(body)))
    return found


def _experiment(experiment: Experiment, prefix: str) -> list[Section]:
    most = max(
        [
            experiment.ceiling.throughput.median,
            *(way.throughput.median for way in experiment.strided),
            *(way.throughput.median for way in experiment.blocks),
            *(way.throughput.median for way in experiment.shuffled),
        ]
    )
    ceiling = experiment.ceiling
    note = (
        f"The storage's ceiling: {_rate(ceiling.throughput)} MiB/s with {ceiling.parallel} "
        f"requests of {ceiling.block} bytes ({ceiling.method}). The present way reaches "
        f"{experiment.share_of_ceiling:.0%} of it."
    )
    strided = [
        (
            str(way.readers),
            way.walk,
            way.method,
            *_speed(way.throughput, most),
            f"{way.switches.median:.3g}",
            f"{way.sleep_share.median:.0%}",
            f"{way.extra:.3g}",
        )
        for way in experiment.strided
    ]
    body: list[Markup] = [
        tag("p", note),
        _ways(f"{prefix}-strided", "Readers that share the file record by record",
              (">readers", "walk", "method"), strided,
              (">switches per MiB", ">asleep", ">extra bytes touched per byte")),
        _ways(f"{prefix}-blocks", "One reader front to back",
              ("method", ">block bytes"),
              [(w.method, str(w.block), *_speed(w.throughput, most), f"{w.switches.median:.3g}",
                f"{w.sleep_share.median:.0%}") for w in experiment.blocks],
              (">switches per MiB", ">asleep")),
        _ways(f"{prefix}-shuffled", "Records in shuffled order, one reader",
              ("method", "told random", ">records ahead"),
              [(w.method, "yes" if w.advised else "no", str(w.ahead), *_speed(w.throughput, most),
                f"{w.latency.median * 1e6:.1f}") for w in experiment.shuffled],
              (">latency µs",)),
    ]  # fmt: skip
    return [Section(f"{prefix}-ways", "Ways to read the file", joined(body))]


def _ways(
    identifier: str,
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    more: Sequence[str],
) -> Markup:
    columns = (*heads, ">MiB/s", "", ">spread", *more)
    return table(f"{identifier}-table", caption, columns, rows) if rows else Markup("")


def _speed(found: Measured, most: float) -> tuple[str, Markup, str]:
    share = found.median / most if most > 0 else 0.0
    return _rate(found), bar(share), f"{found.spread:.0%}"


def _rate(found: Measured) -> str:
    return f"{found.median / MIB:.1f}"


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:.1f}"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)
