"""A topic's messages: near the end, from an offset or a time, live, or those with a text in them; a page for one; a file of all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
from jinja2 import Template
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from barnabas.cli.consume.json_lines import to_lines
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.record_json import TIMESTAMP_TYPES
from barnabas.console import decode
from barnabas.console.readings import READINGS_MAX, SHOWN_MAX, VIEWED, Reading, Wish, wish_of
from barnabas.console.shell import View
from barnabas.console.sse import event, stream
from barnabas.console.values import Value

UPDATE_S = 0.25
PAUSE_S = 0.05
"""Between two updates that take long."""
ROWS_BYTES = 2_000_000
"""Of keys and values that are decoded for one update; the rows behind them are shown as they are."""
WAIT_S = 10.0
"""For one record."""
_readings = anyio.Semaphore(READINGS_MAX)


def messages(request: Request) -> Response:
    """The page; its script asks for the records."""
    view, name = View(request), request.path_params["topic"]
    snapshot = view.snapshot
    if snapshot is None:
        return view.page("messages.html", title=name, section="topics")
    try:
        wish, why = wish_of(snapshot, name, view.query), ""
    except CommandError as e:
        if name not in snapshot.topics:
            return view.page("failed.html", title="No such topic", section="topics", status=404, why=str(e))
        wish, why = Wish("view", (), None, ""), str(e)
    return view.page(
        "messages.html",
        title=f"{name} messages",
        section="topics",
        topic=snapshot.topics[name],
        knows_schemas=view.watcher.values.knows_some,
        wish=wish,
        why=why,
        query=view.query,
        address=str(request.url.query),
        shown_max=SHOWN_MAX,
    )


async def records(request: Request) -> Response:
    """The stream of what the page asks for: rows as HTML, four times a second, with counts."""
    view, wish = await anyio.to_thread.run_sync(_view_and_wish, request)
    template = view.shell.templates.get_template("records.html")

    async def events() -> AsyncIterator[str]:
        async with _readings:
            reading = Reading(view.watcher.settings, wish, view.watcher.values)
            began_s = before_s = time.monotonic()
            before, trouble = 0, ""
            try:
                while not view.watcher.is_closed:
                    woke_s = time.monotonic()
                    is_done = reading.is_done  # before what it has brought is taken
                    if wish.mode == "view" and not is_done:
                        await anyio.sleep(UPDATE_S / 5)
                        continue
                    taken = reading.take()
                    if wish.mode == "view":
                        taken = sorted(taken, key=lambda message: message.timestamp()[1])
                        taken = taken[:VIEWED] if wish.position else taken[-VIEWED:]
                    now_s, count = time.monotonic(), reading.read_count
                    rate = (count - before) / (now_s - before_s) if now_s > before_s else 0.0
                    before_s, before = now_s, count
                    html, came = await anyio.to_thread.run_sync(_rows, view, template, taken) if taken else ("", "")
                    trouble = trouble or came or reading.trouble
                    counts = {"read": count, "total": reading.total, "found": reading.found_count, "rate": rate, "took": now_s - began_s}
                    yield event("rows", {"html": html, "trouble": trouble, **counts})
                    if is_done:
                        yield event("done", {"error": reading.error, "is_full": wish.mode == "search" and reading.is_full})
                        return
                    await anyio.sleep(max(UPDATE_S - (time.monotonic() - woke_s), PAUSE_S))
            finally:
                reading.stop()

    return stream(events())


def record(request: Request) -> Response:
    """One record with all that it has: the link to share."""
    view = View(request)
    name, partition, offset = (request.path_params[key] for key in ("topic", "partition", "offset"))
    if view.snapshot is None:
        return view.page("record.html", title=name, section="topics")
    wish = wish_of(view.snapshot, name, {"partition": str(partition), "from": f"{offset}:{offset + 1}"})
    reading = Reading(view.watcher.settings, wish, view.watcher.values)
    reading.join(WAIT_S)
    found = [message for message in reading.take() if message.offset() == offset]
    if not found:
        why = reading.error or f"{name}-{partition} has no record at offset {offset}: it was deleted, compacted, or is not written yet"
        return view.page("failed.html", title="No such record", section="topics", status=404, why=why)
    (message,) = found
    values = view.watcher.values
    key, value = values.read(name, "key", message.key()), values.read(name, "value", message.value())
    return view.page(
        "record.html",
        title=f"{name}-{partition} @ {offset}",
        section="topics",
        topic=name,
        row=row_of(message, key, value),
        parts=[_part("Key", message.key(), key), _part("Value", message.value(), value)],
        headers=[(header, decode.whole(data)) for header, data in message.headers() or ()],
        kind=TIMESTAMP_TYPES[message.timestamp()[0]] or "no timestamp",
    )


async def download(request: Request) -> Response:
    """JSON lines, as `barnabas consume --output json` writes them: all that the address asks for. `barnabas produce --json` reads them back
    byte for byte, unless the address asks for `decoded=1`: then keys and values are what the pages show of them."""
    view, wish = await anyio.to_thread.run_sync(_view_and_wish, request)
    wish = Wish("download", wish.partitions, wish.position, wish.needle)
    is_decoded = view.query.get("decoded") == "1"

    def to_text(taken: list[Any]) -> str:
        if is_decoded:
            view.watcher.values.apply(taken)
        return to_lines(taken)

    async def lines() -> AsyncIterator[str]:
        async with _readings:
            reading = Reading(view.watcher.settings, wish, view.watcher.values)
            try:
                while True:
                    is_done = reading.is_done
                    taken = reading.take()
                    if taken:
                        yield await anyio.to_thread.run_sync(to_text, taken)
                    elif is_done:
                        if reading.error:
                            raise RefusedError(reading.error)  # the browser sees a file that is cut
                        return
                    else:
                        await anyio.sleep(UPDATE_S / 5)
            finally:
                reading.stop()

    name = f"{request.path_params['topic']}{'-decoded' if is_decoded else ''}.jsonl"
    return StreamingResponse(lines(), media_type="application/jsonl", headers={"content-disposition": f'attachment; filename="{name}"'})


def row_of(message: Any, key: Value, value: Value) -> dict[str, Any]:
    """A record in a line, with key and value as `Values.read` gives them."""
    kind, timestamp_ms = message.timestamp()
    data = message.value()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "time_ms": timestamp_ms if kind else None,
        "key": decode.preview(key.data).of(key),
        "value": decode.preview(value.data).of(value),
        "size": None if data is None else len(data),
        "headers": len(message.headers() or ()),
    }


def _view_and_wish(request: Request) -> tuple[View, Wish]:
    view = View(request)
    if view.snapshot is None:
        view.snapshot = view.watcher.look(WAIT_S)
    if view.snapshot is None:
        raise RefusedError(view.watcher.error or "the cluster has not answered yet")
    return view, wish_of(view.snapshot, request.path_params["topic"], view.query)


def _part(title: str, data: bytes | None, value: Value) -> dict[str, Any]:
    """A key or a value on its own page; `raw` is what it was decoded from."""
    return {
        "title": title,
        "shown": decode.whole(value.data).of(value),
        "is_trouble": value.is_trouble,
        "size": len(data or b""),
        "raw": None if value.schema is None else decode.dump((data or b"")[: decode.HEX_BYTES]),
        "schema": "" if value.schema is None else decode.whole(value.schema.text.encode("utf-8", "replace")).text,
    }


def _rows(view: View, template: Template, taken: list[Any]) -> tuple[str, str]:
    """The newest first, and why something is not decoded that others of its kind would not be either."""
    left, trouble = ROWS_BYTES, ""
    rows = []
    values = view.watcher.values
    for message in reversed(taken):
        key = values.read(message.topic(), "key", message.key(), left)
        value = values.read(message.topic(), "value", message.value(), left)
        left -= sum(len(data) for data, read in ((message.key(), key), (message.value(), value)) if data and read.schema)
        trouble = trouble or next((each.why for each in (key, value) if each.is_trouble), "")
        rows.append(row_of(message, key, value))
    return template.render(view=view, rows=rows), trouble
