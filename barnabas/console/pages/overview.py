"""The cluster at a glance."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from barnabas.cli.cluster.quorum_facts import quorum_facts
from barnabas.cli.errors import CommandError
from barnabas.console import words
from barnabas.console.charts import chart
from barnabas.console.facts import Snapshot
from barnabas.console.shell import View

HOUR_S, DAY_S = 3_600.0, 86_400.0
BUSIEST = 8
NAMES_MAX = 12


def overview(request: Request) -> Response:
    view = View(request)
    snapshot = view.snapshot
    if snapshot is None:
        return view.page("overview.html", title="Overview", section="overview")
    history, now_s = view.watcher.history, time.time()
    is_day = view.query.get("span") == "day"
    read, span_s = (history.day, DAY_S) if is_day else (history.hour, HOUR_S)
    charts = [
        chart("Records in", read("records"), now_s, span_s, lambda value: f"{words.rate(value)}/s"),
        chart("Bytes in", read("bytes"), now_s, span_s, lambda value: f"{words.size(value)}/s"),
        chart("Lag of all groups", read("lag"), now_s, span_s, words.short),
    ]
    rates = {name: points[-1][1] for name in snapshot.topics if (points := history.hour(f"topic {name}"))}
    busiest = sorted((name for name in rates if not snapshot.topics[name].is_internal and rates[name] > 0), key=lambda name: -rates[name])
    behind = sorted((group for group in snapshot.groups.values() if group.lag), key=lambda group: -(group.lag or 0))
    return view.page(
        "overview.html",
        title="Overview",
        section="overview",
        charts=charts,
        is_day=is_day,
        brokers=_brokers(snapshot),
        quorum=_quorum(view) if view.is_second else None,
        busiest=[(name, rates[name]) for name in busiest[:BUSIEST]],
        behind=behind[:BUSIEST],
        names_max=NAMES_MAX,
    )


def _brokers(snapshot: Snapshot) -> list[dict[str, Any]]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    lacking: dict[int, int] = {}
    for topic in snapshot.topics.values():
        for each in topic.partitions:
            leaders[each.leader] = leaders.get(each.leader, 0) + 1
            for broker in each.replicas:
                replicas[broker] = replicas.get(broker, 0) + 1
                lacking[broker] = lacking.get(broker, 0) + (broker not in each.isr)
    alive = {each.id: each for each in snapshot.brokers}
    rows = []
    for broker in sorted({*alive, *replicas}):
        own = [each for each in snapshot.directories if each.broker == broker]
        totals = [each.total_bytes for each in own if each.total_bytes]
        usable = [each.usable_bytes or 0 for each in own if each.total_bytes]
        rows.append(
            {
                "id": broker,
                "facts": alive.get(broker),
                "leaders": leaders.get(broker, 0),
                "replicas": replicas.get(broker, 0),
                "lacking": lacking.get(broker, 0),
                "size_bytes": sum(each.size_bytes for each in own) if own else None,
                "free_bytes": sum(usable) if totals else None,
                "used": 1 - sum(usable) / sum(totals) if totals else None,
                "offline": [each.path for each in own if each.state == "offline"],
            }
        )
    return rows


def _quorum(view: View) -> dict[str, Any]:
    """Of the metadata; its absence is said, since a user may have no right to see it."""
    try:
        return {"error": "", **view.watcher.ask(quorum_facts)}
    except (CommandError, OSError) as e:
        return {"error": str(e)}
