"""A schema registry with Confluent's API, as far as clients that read need it: a server of HTTP in a thread of the tests."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

PROTOBUF = "PROTOBUF"


class SchemaRegistry:
    """`schemas` by their ids, as the API has them, of Protobuf with the serialized descriptors; `subjects` by the beginning of their
    names, up to a hyphen. `asked` are the paths so far, `logins` what came with them. While `is_open` is clear, answers wait. What is in
    `answers` is given for a path in the place of a schema: a status and a body; a status of 3xx leads to the body."""

    def __init__(
        self, schemas: Mapping[int, Mapping[str, Any]], subjects: Mapping[str, int] | None = None, *, login: str = "", port: int = 0
    ) -> None:
        self.schemas, self.subjects = dict(schemas), dict(subjects or {})
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.is_open = threading.Event()
        self.is_open.set()
        self._login = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.is_open.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, address: str, login: str | None) -> tuple[int, bytes]:
        path, _, query = address.partition("?")
        self.asked.append(address)
        self.logins.append(login)
        self.is_open.wait()
        if path in self.answers:
            return self.answers[path]
        if login != self._login:
            return 401, b"{}"
        kind, name, *rest = path.strip("/").split("/")
        number = int(rest[0]) if kind == "schemas" else self.subjects.get(name.partition("-")[0], 0)
        found = self.schemas.get(number)
        if found is None:
            return 404, b"{}"
        is_text = found.get("schemaType") == PROTOBUF and query != "format=serialized"
        return 200, json.dumps({**found, "id": number, **({"schema": "message Order {}"} if is_text else {})}).encode()


def _handler(registry: SchemaRegistry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", content.decode())
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
