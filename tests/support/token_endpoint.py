"""An OAuth provider for tests, by HTTPS: tokens by the client credentials grant (RFC 6749, section 4.4), and the keys that signed them."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from tests.support.jwts import ES256, jwk, key_set, token
from tests.support.secured import FILES

CLIENT, SECRET, SCOPE = "node", "secret of the node", "kafka"
ISSUER, AUDIENCE = "https://idp.example", "brokers"
TOKEN_PATH, KEYS_PATH = "/token", "/keys"
AUTHORITY = FILES / "ca.pem"


class TokenEndpoint:
    """`issued` counts tokens by the client's id. `statuses` are those of the next requests, before any token; `lifetime_s` of a token."""

    def __init__(self, *, lifetime_s: int = 300) -> None:
        self.lifetime_s = lifetime_s
        self.issued: list[str] = []
        self.statuses: list[int] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        self._changed = threading.Condition()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, key_set(jwk(ES256)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._send(*endpoint.answer(self.path, dict(self.headers), parse_qs(body)))

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")  # librdkafka reads nothing else
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(FILES / "server.pem", FILES / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"https://localhost:{self._server.server_address[1]}"

    def answer(self, path: str, headers: dict[str, str], form: dict[str, list[str]]) -> tuple[int, bytes]:
        with self._changed:
            self.requests.append((path, headers, form))
            if self.statuses:
                return self.statuses.pop(0), b'{"error": "said by the test"}'
            client, _, secret = base64.b64decode(headers.get("Authorization", "").removeprefix("Basic ")).decode().partition(":")
            if secret != SECRET or form.get("grant_type") != ["client_credentials"]:
                return 401, b'{"error": "invalid_client"}'
            self.issued.append(client)
            self._changed.notify_all()
        now_s = int(time.time())
        claims = {"sub": client, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self.lifetime_s}
        return 200, json.dumps({"access_token": token(claims), "token_type": "Bearer", "expires_in": self.lifetime_s}).encode()

    def wait_for_tokens(self, count: int, timeout_s: float) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.issued) >= count, timeout_s), self.issued
