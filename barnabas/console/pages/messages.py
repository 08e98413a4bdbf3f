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

UPDATE_S = 0.25
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
            reading = Reading(view.watcher.settings, wish)
            began_s = before_s = time.monotonic()
            before = 0
            try:
                while not view.watcher.is_closed:
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
                    html = await anyio.to_thread.run_sync(_rows, view, template, taken) if taken else ""
                    counts = {"read": count, "total": reading.total, "found": reading.found_count, "rate": rate, "took": now_s - began_s}
                    yield event("rows", {"html": html, **counts})
                    if is_done:
                        yield event("done", {"error": reading.error, "is_full": wish.mode == "search" and reading.is_full})
                        return
                    await anyio.sleep(UPDATE_S)
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
    reading = Reading(view.watcher.settings, wish)
    reading.join(WAIT_S)
    found = [message for message in reading.take() if message.offset() == offset]
    if not found:
        why = reading.error or f"{name}-{partition} has no record at offset {offset}: it was deleted, compacted, or is not written yet"
        return view.page("failed.html", title="No such record", section="topics", status=404, why=why)
    (message,) = found
    return view.page(
        "record.html",
        title=f"{name}-{partition} @ {offset}",
        section="topics",
        topic=name,
        row=row_of(message),
        key=decode.whole(message.key()),
        value=decode.whole(message.value()),
        headers=[(header, decode.whole(data)) for header, data in message.headers() or ()],
        kind=TIMESTAMP_TYPES[message.timestamp()[0]] or "no timestamp",
    )


async def download(request: Request) -> Response:
    """JSON lines, as `barnabas consume --output json` writes them: all that the address asks for."""
    view, wish = await anyio.to_thread.run_sync(_view_and_wish, request)
    wish = Wish("download", wish.partitions, wish.position, wish.needle)

    async def lines() -> AsyncIterator[str]:
        async with _readings:
            reading = Reading(view.watcher.settings, wish)
            try:
                while True:
                    is_done = reading.is_done
                    taken = reading.take()
                    if taken:
                        yield await anyio.to_thread.run_sync(to_lines, taken)
                    elif is_done:
                        if reading.error:
                            raise RefusedError(reading.error)  # the browser sees a file that is cut
                        return
                    else:
                        await anyio.sleep(UPDATE_S / 5)
            finally:
                reading.stop()

    name = f"{request.path_params['topic']}.jsonl"
    return StreamingResponse(lines(), media_type="application/jsonl", headers={"content-disposition": f'attachment; filename="{name}"'})


def row_of(message: Any) -> dict[str, Any]:
    """A record in a line."""
    kind, timestamp_ms = message.timestamp()
    value = message.value()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "time_ms": timestamp_ms if kind else None,
        "key": decode.preview(message.key()),
        "value": decode.preview(value),
        "size": None if value is None else len(value),
        "headers": len(message.headers() or ()),
    }


def _view_and_wish(request: Request) -> tuple[View, Wish]:
    view = View(request)
    if view.snapshot is None:
        view.snapshot = view.watcher.look(WAIT_S)
    if view.snapshot is None:
        raise RefusedError(view.watcher.error or "the cluster has not answered yet")
    return view, wish_of(view.snapshot, request.path_params["topic"], view.query)


def _rows(view: View, template: Template, taken: list[Any]) -> str:
    """The newest first."""
    return template.render(view=view, rows=[row_of(each) for each in reversed(taken)])
