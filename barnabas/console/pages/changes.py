"""What changes something: sign in and out, a new topic, a topic's setting, a record, a group's offsets. Only there if changes are allowed.

Each form has the secret of its session; the guard has checked Host and Origin before. Every try leaves a line in the log: who, what, how it
went. A change that is refused shows the form again, with what was typed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, NotUnderstoodError
from barnabas.cli.topic.configs import parse_configs
from barnabas.console import changes
from barnabas.console.sessions import LASTS_S, Session, Sessions, audit, is_csrf
from barnabas.console.shell import View, path_of

BODY_MAX = 2_000_000
"""Bytes of a form; a record is at most about 1 MB."""
Form = Mapping[str, str]
Handler = Callable[[View, Session, Form | None], Response]


class _TooLargeError(Exception):
    pass


def routes() -> list[Route]:
    """The form is shown by GET and sent by POST."""
    pages: dict[str, Handler] = {
        "/c/{cluster}/new-topic": new_topic,
        "/c/{cluster}/topics/{topic}/config": config,
        "/c/{cluster}/topics/{topic}/produce": produce,
        "/c/{cluster}/reset": reset,
        "/c/{cluster}/sign-out": sign_out,
    }
    forms = [Route(path, _change(handler), methods=["GET", "POST"]) for path, handler in pages.items()]
    return [Route("/c/{cluster}/sign-in", sign_in, methods=["GET", "POST"]), *forms]


async def sign_in(request: Request) -> Response:
    try:
        form = await _form(request) if request.method == "POST" else None
    except _TooLargeError:
        return PlainTextResponse("the form is too large\n", 413)
    return await anyio.to_thread.run_sync(_sign_in, request, form)


def _sign_in(request: Request, form: Form | None) -> Response:
    view, sessions = View(request), _sessions(request)
    wanted = _own_path(view, (form or view.query).get("next", ""))
    if form is None:
        return _page(view, "sign_in.html", "Sign in", wanted=wanted, why="")
    session = sessions.sign_in(form.get("token", ""))
    if session is None:
        audit(_address(request), view.slug, "sign-in refused")
        return _page(view, "sign_in.html", "Sign in", status=403, wanted=wanted, why="that is not the token")
    audit(_who(request, session), view.slug, "signed in")
    answer = RedirectResponse(wanted, 303)
    answer.set_cookie(sessions.cookie, session.id, max_age=int(LASTS_S), path="/", httponly=True, samesite="strict")
    return answer


def sign_out(view: View, session: Session, form: Form | None) -> Response:
    if form is not None:
        _sessions(view.request).sign_out(session)
        audit(_who(view.request, session), view.slug, "signed out")
    return RedirectResponse(view.base, 303)


def new_topic(view: View, session: Session, form: Form | None) -> Response:
    def create(given: Form) -> Response:
        name = given.get("name", "").strip()
        settings = parse_configs(line.strip() for line in given.get("settings", "").splitlines() if line.strip())
        numbers = _number(given, "partitions", -1), _number(given, "replicas", -1)
        what = f"create topic {name} partitions={numbers[0]} replicas={numbers[1]} {settings}"
        _do(view, session, what, lambda connection: changes.create_topic(connection, name, *numbers, settings))
        return RedirectResponse(view.base + path_of("topics", name), 303)

    return _show(view, "new_topic.html", "New topic", form, create)


def config(view: View, session: Session, form: Form | None) -> Response:
    topic = view.request.path_params["topic"]

    def alter(given: Form) -> Response:
        name = given.get("name", "").strip()
        value = None if given.get("action") == "delete" else given.get("value", "")
        what = f"topic {topic}: " + (f"delete {name}" if value is None else f"set {name}={value}")
        _do(view, session, what, lambda connection: changes.alter_config(connection, topic, name, value))
        return RedirectResponse(f"{view.base}{path_of('topics', topic)}?configs=all", 303)

    return _show(view, "set_config.html", "Set a config", form, alter, topic=topic)


def produce(view: View, session: Session, form: Form | None) -> Response:
    topic = view.request.path_params["topic"]

    def send(given: Form) -> Response:
        key = _bytes(given, "key") if given.get("key") or given.get("empty_key") else None
        value = None if given.get("null_value") else _bytes(given, "value")
        partition = _number(given, "partition", None)
        lines = [line for line in given.get("headers", "").splitlines() if line]
        headers = [(name, text.encode()) for name, _, text in (line.partition("=") for line in lines)]
        sizes = f"key {'null' if key is None else len(key)} B, value {'null' if value is None else len(value)} B, {len(headers)} headers"
        what = f"produce to {topic} partition={'any' if partition is None else partition}: {sizes}"
        number, offset = _do(
            view, session, what, lambda connection: changes.produce(connection, topic, partition, key, value, headers), tell=True
        )
        return RedirectResponse(f"{view.base}{path_of('topics', topic, 'messages', number, offset)}", 303)

    return _show(view, "produce.html", "Produce", form, send, topic=topic)


def reset(view: View, session: Session, form: Form | None) -> Response:
    """First a preview; its plan comes back in the form, and that and nothing else is done."""
    group = (form or view.query).get("id", "")

    def plan_or_do(given: Form) -> Response:
        if given.get("action") != "reset":
            with Connection(view.watcher.settings) as connection:
                plan = changes.plan_reset(connection, group, given.get("topic", "").strip(), given.get("to", "").strip())
            return _page(view, "reset.html", "Reset a group", group=group, given=given, why="", plan=plan, plan_text=json.dumps(plan))
        steps = _plan(given.get("plan", ""))
        moves = " ".join(f"{step.topic}-{step.partition}:{step.before}->{step.after}" for step in steps)
        _do(view, session, f"reset group {group}: {moves}", lambda connection: changes.reset(connection, group, steps))
        return RedirectResponse(f"{view.base}/group?id={quote(group, safe='')}", 303)

    return _show(view, "reset.html", "Reset a group", form, plan_or_do, group=group, plan=None, plan_text="")


def _change(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """`handler` for those who have signed in, with the form of a POST that has their session's secret."""

    async def endpoint(request: Request) -> Response:
        try:
            form = await _form(request) if request.method == "POST" else None
        except _TooLargeError:
            return PlainTextResponse("the form is too large\n", 413)
        return await anyio.to_thread.run_sync(run, request, form)

    def run(request: Request, form: Form | None) -> Response:
        view = View(request)
        session = view.session
        if session is None:
            if form is not None:
                audit(_address(request), view.slug, f"refused, not signed in: POST {request.url.path}")
                return PlainTextResponse("refused: sign in first\n", 403)
            address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{view.base}/sign-in?next={quote(address, safe='')}", 303)
        if form is not None and not is_csrf(session, form.get("csrf", "")):
            audit(_who(request, session), view.slug, f"refused, without the form's secret: POST {request.url.path}")
            return PlainTextResponse("refused: the form is not of this session; open it again\n", 403)
        return handler(view, session, form)

    return endpoint


def _show(view: View, template: str, title: str, form: Form | None, act: Callable[[Form], Response], **context: Any) -> Response:
    """The empty form; or what `act` answers; or the form again, with why it was refused."""
    why, status = "", 200
    if form is not None:
        try:
            view.watcher.settings.check_writable()
            return act(form)
        except (CommandError, OSError) as e:
            why, status = str(e), 400
    return _page(view, template, title, status=status, given=form or view.query, why=why, **context)


def _page(view: View, template: str, title: str, *, status: int = 200, **context: Any) -> Response:
    return view.page(template, title=title, section="", status=status, is_for_figures=False, **context)


def _do(view: View, session: Session, what: str, change: Callable[[Connection], Any], *, tell: bool = False) -> Any:
    """What `change` returns, by a connection of its own: a change is never tried twice. Raises CommandError, OSError."""
    who = _who(view.request, session)
    try:
        view.watcher.settings.check_writable()
        with Connection(view.watcher.settings) as connection:
            result = change(connection)
    except (CommandError, OSError) as e:
        audit(who, view.slug, f"{what}: failed: {e}")
        raise
    audit(who, view.slug, f"{what}: done" + (f", {result}" if tell else ""))
    view.watcher.poll_soon()
    return result


async def _form(request: Request) -> Form:
    """URL-encoded fields, as the console's own forms send them; of a field that comes twice, the last. Raises _TooLargeError."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            raise _TooLargeError
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        return {}


def _own_path(view: View, wanted: str) -> str:
    """Where a sign-in leads: into this cluster's pages and nowhere else."""
    is_own = wanted.startswith(f"{view.base}/") and wanted.isprintable() and "\\" not in wanted and not urlsplit(wanted).netloc
    return wanted if is_own else view.base


def _plan(text: str) -> list[changes.Step]:
    try:
        steps = [changes.Step(str(topic), int(partition), before, int(after)) for topic, partition, before, after in json.loads(text)]
    except (ValueError, TypeError) as e:
        raise NotUnderstoodError("the preview is not whole; look at a new one") from e
    if not steps:
        raise NotUnderstoodError("the preview is empty")
    return steps


def _number(form: Form, name: str, default: Any) -> Any:
    text = form.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise NotUnderstoodError(f"{name}: {text} is no number")
    return int(text)


def _bytes(form: Form, name: str) -> bytes:
    """Browsers send the lines of a field with CR and LF; a record has what was typed."""
    return form.get(name, "").replace("\r\n", "\n").encode("utf-8", "replace")


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.shell.sessions
    return sessions


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _who(request: Request, session: Session) -> str:
    return f"session {session.name} from {_address(request)}"
