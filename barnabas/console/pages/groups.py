"""The groups: how far each is behind, in records and, for the rows on the screen, in time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.facts import Group
from barnabas.console.lag_times import worst_lags_ms
from barnabas.console.shell import View
from barnabas.console.tables import page_of
from barnabas.console.watcher import group_series


def groups(request: Request) -> Response:
    view = View(request)
    if view.snapshot is None:
        return view.page("groups.html", title="Groups", section="groups")
    columns = {
        "name": lambda group: group.name,
        "lag": lambda group: group.lag,
        "state": lambda group: group.state,
        "topics": lambda group: len(group.topics),
    }

    def name(group: Group) -> str:
        return group.name

    page = page_of(list(view.snapshot.groups.values()), view.query, columns, name=name, default="lag")
    times_ms = worst_lags_ms(view.watcher, page.rows, view.snapshot) if view.is_second else None
    history = view.watcher.history
    slopes = {group.name: history.slope(group_series(group.name)) for group in page.rows}
    return view.page(
        "groups.html", title="Groups", section="groups", page=page, times_ms=times_ms, slopes=slopes, series=group_series, history=history
    )
