"""Who may ask: every request and stream is checked before a page sees it, and every answer tells the browser what it may not do.

- Host: only names of this console. A page of somebody else whose name turns to 127.0.0.1 (DNS rebinding) comes with its own name.
- Origin and Sec-Fetch-Site: no other site's page or script reads or changes anything; it may only link here.
- Content-Security-Policy: scripts and styles from this console alone, none inside a page.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
SAME_SITE = ("same-origin", "none", "")
SAFE = ("GET", "HEAD")


class Guard:
    """`hosts` are names as they stand in a Host header, with their ports."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(each.lower() for each in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets
        why = self._refuse(scope["method"], Headers(scope=scope))
        app: ASGIApp = self._app if why is None else PlainTextResponse(f"refused: {why}\n", 403)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"  # records and settings stay in no cache
            await send(message)

        await app(scope, receive, send_with_headers)

    def _refuse(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "").lower()
        if len(headers.getlist("host")) != 1 or host not in self._hosts:
            return "this console is not known by that Host; barnabas console --allow-host NAME:PORT adds a name"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return "another site's Origin"
        is_link = method in SAFE and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if headers.get("sec-fetch-site", "") not in SAME_SITE and not is_link:
            return "another site's request"
        if method not in SAFE and origin is None and headers.get("sec-fetch-site") != "same-origin":
            return "a change without an Origin"
        return None
