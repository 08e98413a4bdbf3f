"""What changes something: a new topic, a topic's setting, a record, a group's offsets. Only there if changes are allowed.

Who has logged in as a user of the cluster changes it by connections of that user, so that the cluster's ACLs decide; who has the token, by
the console's own user.

Each form has the secret of its session; the guard has checked Host and Origin before. Every try leaves a line in the log: who, what, how it
went. A change that is refused shows the form again, with what was typed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, NotLetInError, NotUnderstoodError
from barnabas.cli.topic.configs import parse_configs
from barnabas.console import changes
from barnabas.console.forms import Form, address_of, form_page, name_of, read_form
from barnabas.console.pages.sign_in import NOT_OF_SESSION, sign_in_page
from barnabas.console.sessions import Session, audit, is_csrf
from barnabas.console.shell import View, path_of

BODY_MAX = 2_000_000
"""Bytes of a form; a record is at most about 1 MB."""
SEEN_WAIT_S = 2.0
"""For a poll that shows a new topic; the console's own user may not be allowed to see it."""
Handler = Callable[[View, Session, Form | None], Response]


def routes() -> list[Route]:
    """The form is shown by GET and sent by POST."""
    pages: dict[str, Handler] = {
        "/c/{cluster}/new-topic": new_topic,
        "/c/{cluster}/topics/{topic}/config": config,
        "/c/{cluster}/topics/{topic}/produce": produce,
        "/c/{cluster}/reset": reset,
    }
    return [Route(path, _change(handler), methods=["GET", "POST"]) for path, handler in pages.items()]


def new_topic(view: View, session: Session, form: Form | None) -> Response:
    def create(given: Form) -> Response:
        name = given.get("name", "").strip()
        settings = parse_configs(line.strip() for line in given.get("settings", "").splitlines() if line.strip())
        numbers = _number(given, "partitions", -1), _number(given, "replicas", -1)
        what = f"create topic {name} partitions={numbers[0]} replicas={numbers[1]} {settings}"
        _do(view, session, what, lambda connection: changes.create_topic(connection, name, *numbers, settings))
        view.watcher.wait_until(lambda snapshot: name in snapshot.topics, SEEN_WAIT_S)  # its page is by the snapshot
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
            with Connection(view.settings_of_changes) as connection:
                plan = changes.plan_reset(connection, group, given.get("topic", "").strip(), given.get("to", "").strip())
            return form_page(view, "reset.html", "Reset a group", group=group, given=given, why="", plan=plan, plan_text=json.dumps(plan))
        steps = _plan(given.get("plan", ""))
        moves = " ".join(f"{step.topic}-{step.partition}:{step.before}->{step.after}" for step in steps)
        _do(view, session, f"reset group {group}: {moves}", lambda connection: changes.reset(connection, group, steps))
        return RedirectResponse(f"{view.base}/group?id={quote(group, safe='')}", 303)

    return _show(view, "reset.html", "Reset a group", form, plan_or_do, group=group, plan=None, plan_text="")


def _change(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """`handler` for those who have signed in, with the form of a POST that has their session's secret."""

    async def endpoint(request: Request) -> Response:
        return await anyio.to_thread.run_sync(run, request, await read_form(request, BODY_MAX))

    def run(request: Request, form: Form | None) -> Response:
        view = View(request)
        session = view.session
        if session is None or not view.is_let_in:
            if form is not None:
                audit(address_of(request), view.slug, f"refused, not signed in: POST {request.url.path}")
                return PlainTextResponse("refused: sign in first\n", 403)
            return RedirectResponse(f"{view.base}/sign-in?next={quote(_address(request), safe='')}", 303)
        if form is not None and not is_csrf(session, form.get("csrf", "")):
            audit(name_of(view, session), view.slug, f"refused, without the form's secret: POST {request.url.path}")
            return PlainTextResponse(NOT_OF_SESSION, 403)
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
            if isinstance(e, NotLetInError) and view.login is not None:
                return _sign_in_again(view, e)
            why, status = str(e), 400
    return form_page(view, template, title, status=status, given=form or view.query, why=why, **context)


def _sign_in_again(view: View, error: NotLetInError) -> Response:
    """The cluster does not let the user in any more: the password was changed, or the user deleted. The login is forgotten."""
    session, login, sessions = view.session, view.login, view.shell.sessions
    assert session is not None and login is not None and sessions is not None
    sessions.forget(session, view.slug)
    view.login = None
    why = f"the brokers do not let {login.user} in any more: {error.why}"
    return sign_in_page(view, _address(view.request), form={"user": login.user}, why=why, status=403)


def _do(view: View, session: Session, what: str, change: Callable[[Connection], Any], *, tell: bool = False) -> Any:
    """What `change` returns, by a connection of its own: a change is never tried twice. Raises CommandError, OSError."""
    who = name_of(view, session)
    try:
        view.watcher.settings.check_writable()
        with Connection(view.settings_of_changes) as connection:
            result = change(connection)
    except (CommandError, OSError) as e:
        audit(who, view.slug, f"{what}: failed: {e}")
        raise
    audit(who, view.slug, f"{what}: done" + (f", {result}" if tell else ""))
    view.watcher.poll_soon()
    return result


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


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
