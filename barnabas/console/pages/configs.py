"""The settings of brokers: value, who set it, the default, and what it means. Those of a topic are on its page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from barnabas.cli.config.resources import DEFAULT, describe
from barnabas.console.shell import View
from barnabas.console.tables import page_of


def configs(request: Request) -> Response:
    view = View(request)
    if view.snapshot is None:
        return view.page("configs.html", title="Configs", section="configs")
    known = [*(str(each.id) for each in view.snapshot.brokers), DEFAULT]
    broker = view.query.get("broker", "")
    broker = broker if broker in known else known[0]
    settings = view.watcher.ask(lambda connection: describe(connection, "broker", [broker], documentation=True)).get(broker, [])
    shows_all = view.query.get("all") == "1" or bool(view.query.get("filter"))
    shown = [each for each in settings if shows_all or each["source"] not in ("default",)]
    columns = {key: (lambda row, key=key: str(row[key] or "")) for key in ("name", "value", "source")}
    page = page_of(shown, view.query, columns, name=columns["name"], default="name", descending=False)
    return view.page(
        "configs.html", title="Configs", section="configs", known=known, broker=broker, page=page, shows_all=shows_all, count=len(settings)
    )
