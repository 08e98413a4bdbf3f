"""What all pages have: the cluster that the address names, the templates, and the frame around a page."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from barnabas.cli.errors import RefusedError
from barnabas.cli.settings import Settings
from barnabas.console import charts, words
from barnabas.console.facts import Snapshot
from barnabas.console.logins import Login, takes_passwords
from barnabas.console.sessions import Session, Sessions
from barnabas.console.watcher import Watcher

HERE = Path(__file__).resolve().parent
STATIC = HERE / "static"
FIRST_WAIT_S = 0.05
"""For the first snapshot; a page that comes without figures gets them by its stream."""


class Shell:
    """Owns the templates; one for each application."""

    def __init__(self, watchers: Mapping[str, Watcher], sessions: Sessions | None = None) -> None:
        self.watchers = watchers
        self.sessions = sessions
        """None if nothing may be changed."""
        self.templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters.update(words.FILTERS)
        self.templates.globals.update(spark=charts.spark, bar=charts.bar, path_of=path_of)


class View:
    """One request: its cluster and what the frame shows. `snapshot` is None before the first answer of the cluster."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.shell: Shell = request.app.state.shell
        self.slug: str = request.path_params["cluster"]
        if self.slug not in self.shell.watchers:
            raise HTTPException(404)
        self.watcher = self.shell.watchers[self.slug]
        self.snapshot: Snapshot | None = self.watcher.look(FIRST_WAIT_S)
        self.query: Mapping[str, str] = dict(request.query_params)

    @property
    def base(self) -> str:
        return f"/c/{self.slug}"

    @functools.cached_property
    def session(self) -> Session | None:
        """Of who has signed in, if only to another cluster."""
        sessions = self.shell.sessions
        if sessions is None:
            return None
        return sessions.find(self.request.cookies.get(sessions.cookie, ""), is_used=not self.is_second)

    @functools.cached_property
    def login(self) -> Login | None:
        """The person's own to this cluster, as this request first saw it: if it ends meanwhile, the rights stay the same."""
        return None if self.session is None else self.session.logins.get(self.slug)

    @property
    def is_let_in(self) -> bool:
        """Whether the person may try to change something in this cluster."""
        return self.session is not None and (self.session.has_token or self.login is not None)

    @property
    def may_change(self) -> bool:
        return self.is_let_in and not self.watcher.settings.is_read_only

    @property
    def settings_of_changes(self) -> Settings:
        """How a change connects: as the person, or, by the token alone, as the console's own user. Raises RefusedError for all others."""
        if self.login is not None:
            return self.login.settings
        if self.session is None or not self.session.has_token:
            raise RefusedError("sign in first")
        own: Settings = self.watcher.settings
        return own

    @property
    def can_log_in(self) -> bool:
        """Whether users of this cluster may log in here."""
        sessions = self.shell.sessions
        return sessions is not None and sessions.allows_login and takes_passwords(self.watcher.settings)

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a way to sign in to this cluster."""
        sessions = self.shell.sessions
        return sessions is not None and (sessions.has_token or self.can_log_in)

    @property
    def is_second(self) -> bool:
        """Whether the script asks, for a page that stands already: what takes longer may be in it."""
        return "x-again" in self.request.headers

    def page(self, template: str, *, title: str, section: str, status: int = 200, is_for_figures: bool = True, **context: Any) -> Response:
        """The page, or, before the first answer of the cluster, the frame with a word of that, unless the page needs no figures."""
        frame = {
            "view": self,
            "title": title,
            "section": section,
            "snapshot": self.snapshot,
            "error": self.watcher.error,
            "now_s": time.time(),
            "history": self.watcher.history,
        }
        if self.snapshot is None and is_for_figures:
            template = "waiting.html"
        text = self.shell.templates.get_template(template).render({**frame, **context})
        return HTMLResponse(text, 503 if is_for_figures and self.snapshot is None and self.watcher.error else status)


def failed(request: Request, error: Exception) -> Response:
    """A question to the cluster was refused, or nobody answered."""
    if "cluster" not in request.path_params:
        return PlainTextResponse(f"{error}\n", 502)
    return View(request).page("failed.html", title="Not answered", section="", status=502, why=str(error))


def not_found(request: Request, error: Exception) -> Response:
    return PlainTextResponse("not found\n", 404)


def path_of(*parts: object) -> str:
    """An address of these parts, each quoted."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)
