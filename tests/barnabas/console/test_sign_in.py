"""What a sign-in does to the tries that come after it: by the pages' own function, without a server."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response

from barnabas.cli.settings import Settings
from barnabas.console.app import make_app
from barnabas.console.pages.sign_in import sign_in
from barnabas.console.sessions import BY_TOKEN, Sessions
from barnabas.console.tries import AT_ONCE_MAX, STEP_S
from barnabas.console.watcher import Watcher
from tests.barnabas.console.test_tries import wait_s

TOKEN = "a-token-that-nobody-guesses"
ADDRESS = "192.0.2.1"


class Door:
    """A console that lets in by the token, at a cluster that is not there."""

    def __init__(self) -> None:
        self.sessions = Sessions(TOKEN, 1)
        self.lane = self.sessions.tries.lane(ADDRESS, BY_TOKEN, "")
        watcher = Watcher("local", Settings({"bootstrap.servers": "b:1"}, {"bootstrap.servers": "b:1"}))
        watcher.close()
        self._app = make_app({"local": watcher}, (), self.sessions)

    def sign_in(self, token: str, mark: str = "") -> Response:
        scope = {
            "type": "http",
            "method": "POST",
            "app": self._app,
            "client": (ADDRESS, 1),
            "path_params": {"cluster": "local"},
            "query_string": b"",
            "headers": [
                (b"content-type", b"application/x-www-form-urlencoded"),
                (b"cookie", f"{self.sessions.mark_cookie}={mark}".encode()),
            ],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": urlencode({"token": token}).encode(), "more_body": False}

        with ThreadPoolExecutor(1) as thread:  # a loop that the browser of other files left running stays in the tests' own
            return thread.submit(anyio.run, sign_in, Request(scope, receive)).result()


def test_wrong_token_slows_its_address_and_not_a_browser_that_is_known() -> None:
    door = Door()
    tries = door.sessions.tries
    mark = tries.mark(BY_TOKEN)
    known = tries.lane(ADDRESS, BY_TOKEN, mark)

    assert door.sign_in(TOKEN[:-1]).status_code == 403

    assert wait_s(tries, door.lane) == pytest.approx(2 * STEP_S)
    assert wait_s(tries, known) == STEP_S and wait_s(tries, tries.lane("192.0.2.2", BY_TOKEN, "")) == STEP_S
    assert door.sign_in(TOKEN, mark).status_code == 303
    assert door.sign_in("wrong", mark).status_code == 403
    assert wait_s(tries, known) == pytest.approx(2 * STEP_S) and wait_s(tries, door.lane) == pytest.approx(2 * STEP_S)
    assert door.sign_in(TOKEN).status_code == 303
    assert wait_s(tries, door.lane) == pytest.approx(2 * STEP_S)  # who knows one password does not so guess another faster


def test_tries_over_the_bound_are_told_so_and_let_nobody_in() -> None:
    door = Door()

    with contextlib.ExitStack() as under_way:
        for _ in range(AT_ONCE_MAX):
            under_way.enter_context(door.sessions.tries.begin(door.lane))
        refused = door.sign_in(TOKEN)

    assert refused.status_code == 429 and "set-cookie" not in refused.headers
    assert b"too many tries at once from this address" in bytes(refused.body) and TOKEN.encode() not in bytes(refused.body)
    assert door.sign_in(TOKEN).status_code == 303
