"""The topics: rates, sizes, health, and of the rows on the screen the groups that read them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.facts import Snapshot
from barnabas.console.history import History
from barnabas.console.shell import View
from barnabas.console.tables import page_of
from barnabas.console.watcher import topic_series


def topics(request: Request) -> Response:
    view = View(request)
    if view.snapshot is None:
        return view.page("topics.html", title="Topics", section="topics")
    shows_internal = view.query.get("internal") == "1"
    found = [each for each in view.snapshot.topics.values() if shows_internal or not each.is_internal]
    rows = _rows(view.snapshot, view.watcher.history, [each.name for each in found])
    columns = {
        "name": lambda row: row["name"],
        "rate": lambda row: row["rate"],
        "records": lambda row: row["records"],
        "size": lambda row: row["size_bytes"],
        "partitions": lambda row: row["partitions"],
        "replicas": lambda row: row["replicas"],
        "unhealthy": lambda row: row["without_leader"] * 1_000_000 + row["under_replicated"],
    }
    page = page_of(rows, view.query, columns, name=columns["name"], default="rate")
    hidden = sum(each.is_internal for each in view.snapshot.topics.values())
    return view.page("topics.html", title="Topics", section="topics", page=page, shows_internal=shows_internal, hidden=hidden)


def _rows(snapshot: Snapshot, history: History, names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        topic, rates = snapshot.topics[name], history.hour(topic_series(name))
        rows.append(
            {
                "name": name,
                "topic": topic,
                "rate": rates[-1][1] if rates else None,
                "points": rates,
                "records": snapshot.records[name],
                "size_bytes": None if snapshot.sizes is None else snapshot.topic_sizes.get(name, 0),
                "partitions": len(topic.partitions),
                "replicas": topic.replicas,
                "under_replicated": topic.under_replicated,
                "without_leader": topic.without_leader,
                "readers": snapshot.readers.get(name, ()),
            }
        )
    return rows
