"""One topic: its partitions, the groups that read it, and its settings with who set them, the default and what they mean."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from barnabas.cli.config.resources import describe
from barnabas.console import words
from barnabas.console.charts import chart
from barnabas.console.facts import Snapshot, Topic
from barnabas.console.shell import View
from barnabas.console.tables import page_of
from barnabas.console.watcher import topic_series

HOUR_S, DAY_S = 3_600.0, 86_400.0


def topic(request: Request) -> Response:
    view, name = View(request), request.path_params["topic"]
    snapshot = view.snapshot
    if snapshot is None:
        return view.page("topic.html", title=name, section="topics")
    if name not in snapshot.topics:
        return view.page("failed.html", title="No such topic", section="topics", status=404, why=f"there is no topic {name}")
    found = snapshot.topics[name]
    history = view.watcher.history
    columns = {key: (lambda row, key=key: row[key]) for key in ("name", "leader", "records", "size", "start", "end")}
    partitions = page_of(_partitions(snapshot, found), view.query, columns, name=columns["name"], default="name", descending=False)
    settings = view.watcher.ask(lambda connection: describe(connection, "topic", [name], documentation=True))[name]
    return view.page(
        "topic.html",
        title=name,
        section="topics",
        topic=found,
        size_bytes=None if snapshot.sizes is None else snapshot.topic_sizes.get(name, 0),
        rate_hour=chart("Records in, hour", history.hour(topic_series(name)), time.time(), HOUR_S, lambda value: f"{words.rate(value)}/s"),
        rate_day=chart("Records in, day", history.day(topic_series(name)), time.time(), DAY_S, lambda value: f"{words.rate(value)}/s"),
        page=partitions,
        readers=_readers(snapshot, name),
        settings=settings,
        shows_all=view.query.get("configs") == "all",
    )


def _partitions(snapshot: Snapshot, topic: Topic) -> list[dict[str, Any]]:
    rows = []
    for each in topic.partitions:
        key = topic.name, each.number
        start, end = snapshot.starts.get(key), snapshot.ends.get(key)
        rows.append(
            {
                "name": each.number,
                "leader": each.leader,
                "facts": each,
                "start": start,
                "end": end,
                "records": None if start is None or end is None else end - start,
                "size": None if snapshot.sizes is None else snapshot.sizes.get(key, 0),
            }
        )
    return rows


def _readers(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    rows = []
    for reader in snapshot.readers.get(name, ()):
        group = snapshot.groups[reader]
        own = {index: offset for (topic, index), offset in group.offsets.items() if topic == name}
        lags = [max(end - offset, 0) for index, offset in own.items() if (end := snapshot.ends.get((name, index))) is not None]
        rows.append({"group": group, "partitions": len(own), "lag": sum(lags) if len(lags) == len(own) else None})
    return sorted(rows, key=lambda row: -(row["lag"] or 0))
