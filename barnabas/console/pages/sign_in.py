"""Sign in, by the console's token or as a user of the cluster, and sign out.

A try waits before it is looked at, by tries.py. Of a wrong one the log has the address alone: people type passwords where the name belongs.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from barnabas.cli.errors import CommandError, NotLetInError
from barnabas.console.forms import Form, address_of, form_page, name_of, read_form
from barnabas.console.logins import Login, log_in
from barnabas.console.sessions import BY_TOKEN, LASTS_S, Session, Sessions, audit, is_csrf, who_of
from barnabas.console.shell import View
from barnabas.console.tries import TooManyError

BODY_MAX = 20_000
"""Bytes of a form."""
NOT_OF_SESSION = "refused: the form is not of this session; open it again\n"


class _Answer(NamedTuple):
    response: Response
    is_wrong: bool = False
    """Whether a password or a token was wrong."""


def routes() -> list[Route]:
    return [
        Route("/c/{cluster}/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/c/{cluster}/sign-out", sign_out, methods=["GET", "POST"]),
    ]


async def sign_in(request: Request) -> Response:
    form = await read_form(request, BODY_MAX)
    if form is None:
        return await anyio.to_thread.run_sync(_show, request)
    sessions = _sessions(request)
    who = BY_TOKEN if "token" in form else who_of(request.path_params["cluster"], form.get("user", ""))
    lane = sessions.tries.lane(address_of(request), who, request.cookies.get(sessions.mark_cookie, ""))
    try:
        with sessions.tries.begin(lane) as wait_s:
            await anyio.sleep(wait_s)
            answer = await anyio.to_thread.run_sync(_try, request, form, who)
            if answer.is_wrong:
                sessions.tries.was_wrong(lane)
            return answer.response
    except TooManyError as e:
        return await anyio.to_thread.run_sync(_show, request, form, str(e), 429)


async def sign_out(request: Request) -> Response:
    form = await read_form(request, BODY_MAX)
    return await anyio.to_thread.run_sync(_sign_out, request, form)


def sign_in_page(view: View, wanted: str, *, form: Form | None = None, why: str = "", status: int = 200) -> Response:
    """The forms, or a word that this cluster has none. A password never comes back."""
    if not view.can_sign_in:
        why = "this cluster's context has no login by SASL PLAIN or SCRAM, which a sign-in here takes"
        return form_page(view, "failed.html", "No sign-in", status=404, why=why)
    sessions = _sessions(view.request)
    settings = view.watcher.settings
    return form_page(
        view,
        "sign_in.html",
        "Sign in",
        status=status,
        wanted=wanted,
        why=why,
        user=(form or {}).get("user", ""),
        mechanism=settings.mechanism if view.can_log_in else "",
        is_plain="SSL" not in settings.librdkafka.get("security.protocol", "").upper(),
        has_token=sessions.has_token,
    )


def _show(request: Request, form: Form | None = None, why: str = "", status: int = 200) -> Response:
    view = View(request)
    return sign_in_page(view, _own_path(view, (form or view.query).get("next", "")), form=form, why=why, status=status)


def _try(request: Request, form: Form, who: str) -> _Answer:
    view, sessions = View(request), _sessions(request)
    wanted = _own_path(view, form.get("next", ""))
    before = view.session
    if before is not None and not is_csrf(before, form.get("csrf", "")):
        audit(name_of(view, before), view.slug, "sign-in refused, without the form's secret")
        return _Answer(PlainTextResponse(NOT_OF_SESSION, 403))
    login: Login | None = None
    why = ""
    try:
        if "token" in form:
            why = "" if sessions.is_token(form["token"]) else "that is not the token"
        elif not view.can_log_in:
            why = "nobody signs in here with a password"
        else:
            login = log_in(view.watcher.settings, form.get("user", ""), form.get("password", ""))
    except NotLetInError as e:
        why = f"the brokers do not let {form.get('user')} in: {e.why}"
    except (CommandError, OSError) as e:
        return _Answer(sign_in_page(view, wanted, form=form, why=str(e), status=400))
    if why:
        audit(address_of(request), view.slug, "sign-in refused")
        return _Answer(sign_in_page(view, wanted, form=form, why=why, status=403), is_wrong=True)
    session = sessions.sign_in(before, view.slug, login)
    view.session = session
    audit(name_of(view, session), view.slug, "signed in" if login else "signed in by the token")
    answer = RedirectResponse(wanted, 303)
    is_secure = request.headers.get("origin", "").lower().startswith("https://")  # a proxy's; the console itself has no TLS
    for name, value in ((sessions.cookie, session.id), (sessions.mark_cookie, sessions.tries.mark(who))):
        answer.set_cookie(name, value, max_age=int(LASTS_S), path="/", httponly=True, samesite="strict", secure=is_secure)
    return _Answer(answer)


def _sign_out(request: Request, form: Form | None) -> Response:
    view = View(request)
    answer = RedirectResponse(view.base, 303)
    session: Session | None = view.session
    if session is None or form is None:
        return answer
    if not is_csrf(session, form.get("csrf", "")):
        audit(name_of(view, session), view.slug, "sign-out refused, without the form's secret")
        return PlainTextResponse(NOT_OF_SESSION, 403)
    audit(name_of(view, session), view.slug, "signed out")
    sessions = _sessions(request)
    sessions.sign_out(session)
    answer.delete_cookie(sessions.cookie, path="/", httponly=True, samesite="strict")
    return answer


def _own_path(view: View, wanted: str) -> str:
    """Where a sign-in leads: into this cluster's pages and nowhere else."""
    is_own = wanted.startswith(f"{view.base}/") and wanted.isprintable() and "\\" not in wanted and not urlsplit(wanted).netloc
    return wanted if is_own else view.base


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.shell.sessions
    return sessions
