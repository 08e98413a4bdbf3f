"""One group: lag by partition in records and in time, its members, and how the lag went."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from barnabas.cli.errors import CommandError
from barnabas.cli.group.facts import describe_groups, is_missing
from barnabas.console import words
from barnabas.console.charts import chart
from barnabas.console.facts import Partition
from barnabas.console.lag_times import lags_ms
from barnabas.console.shell import View
from barnabas.console.tables import page_of
from barnabas.console.watcher import group_series

HOUR_S, DAY_S = 3_600.0, 86_400.0


def group(request: Request) -> Response:
    view = View(request)
    name, snapshot = view.query.get("id", ""), view.snapshot
    if snapshot is None:
        return view.page("group.html", title=name, section="groups")
    if name not in snapshot.groups:
        return view.page("failed.html", title="No such group", section="groups", status=404, why=f"there is no group {name}")
    found = snapshot.groups[name]
    members, owners, why = _members(view, name)
    times_ms = lags_ms(view.watcher, found.offsets, snapshot) if view.is_second else {}
    rows = [
        {
            "name": f"{topic}-{index:06}",
            "topic": topic,
            "partition": index,
            "offset": (offset := found.offsets.get((topic, index))),
            "end": (end := snapshot.ends.get((topic, index))),
            "lag": None if end is None or offset is None else max(end - offset, 0),
            "behind": 0 if offset is not None and end == offset else times_ms.get((topic, index)),
            "member": owners.get((topic, index)),
        }
        for topic, index in sorted({*found.offsets, *owners})
    ]
    columns = {key: (lambda row, key=key: row[key]) for key in ("name", "offset", "end", "lag", "behind")}
    page = page_of(rows, view.query, columns, name=columns["name"], default="lag")
    history, now_s = view.watcher.history, time.time()
    series = group_series(name)
    return view.page(
        "group.html",
        title=name or "(no name)",
        section="groups",
        group=found,
        members=members,
        why=why,
        page=page,
        worst_ms=max(times_ms.values(), default=None),
        slope=history.slope(series),
        lag_hour=chart("Lag, hour", history.hour(series), now_s, HOUR_S, words.short),
        lag_day=chart("Lag, day", history.day(series), now_s, DAY_S, words.short),
    )


def _members(view: View, name: str) -> tuple[list[Any], dict[Partition, Any], str]:
    """The members, whom each partition belongs to, and why they are not told."""
    try:
        (described,) = view.watcher.ask(lambda connection: describe_groups(connection, [name])).values()
    except (CommandError, OSError) as e:
        return [], {}, str(e)
    if isinstance(described, CommandError):
        return [], {}, "" if is_missing(described) else str(described)
    owners = {(each.topic, each.partition): member for member in described.members for each in member.assignment.topic_partitions}
    return list(described.members), owners, ""
