"""The application: addresses, pages and streams, behind the guard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from barnabas.cli.errors import CommandError
from barnabas.console.guard import Guard
from barnabas.console.pages import changes, configs, group, groups, messages, overview, sign_in, ticks, topic, topics
from barnabas.console.sessions import Sessions
from barnabas.console.shell import STATIC, Shell, failed, not_found
from barnabas.console.watcher import Watcher


def make_app(watchers: Mapping[str, Watcher], hosts: Iterable[str], sessions: Sessions | None = None) -> Starlette:
    """`watchers` by their part of the address, the first of which is shown first; `hosts` as in Guard.
    Without `sessions` there is nothing to change."""
    routes = [
        Route("/", _first),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/c/{cluster}", overview.overview),
        Route("/c/{cluster}/ticks", ticks.ticks),
        Route("/c/{cluster}/topics", topics.topics),
        Route("/c/{cluster}/topics/{topic}", topic.topic),
        Route("/c/{cluster}/topics/{topic}/messages", messages.messages),
        Route("/c/{cluster}/topics/{topic}/messages/records", messages.records),
        Route("/c/{cluster}/topics/{topic}/messages.jsonl", messages.download),
        Route("/c/{cluster}/topics/{topic}/messages/{partition:int}/{offset:int}", messages.record),
        Route("/c/{cluster}/groups", groups.groups),
        Route("/c/{cluster}/group", group.group),
        Route("/c/{cluster}/configs", configs.configs),
        *((*sign_in.routes(), *changes.routes()) if sessions is not None else ()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=tuple(hosts))],
        exception_handlers={CommandError: failed, OSError: failed, 404: not_found},
    )
    app.state.shell = Shell(watchers, sessions)
    return app


def _first(request: Request) -> Response:
    shell: Shell = request.app.state.shell
    return RedirectResponse(f"/c/{next(iter(shell.watchers))}", 302)
