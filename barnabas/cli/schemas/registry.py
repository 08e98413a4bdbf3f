"""Schemas of a registry with Confluent's API: by their ids, and the newest of a subject. What an id has never changes, so it is asked once.

A login is `user:password`, in BARNABAS_SCHEMA_REGISTRY_LOGIN or in a context's file: others on the machine can read arguments. It goes to
the registry alone: where that leads elsewhere, nobody follows.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple, Protocol

from barnabas.cli.errors import NoBrokerError, NotUnderstoodError, RefusedError
from barnabas.cli.output import printable

LOGIN = "BARNABAS_SCHEMA_REGISTRY_LOGIN"
ANSWER_BYTES_MAX = 10_000_000
PIECE_BYTES = 65_536
REFERENCES_MAX = 200
"""Of one schema, with those of its references."""
KNOWN_MAX = 500
KNOWN_CHARACTERS_MAX = 20_000_000
"""Of the schemas that are kept; the oldest go first."""
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
NOT_FOUND = 404


class Schema(NamedTuple):
    """`texts` are those that the last one refers to, before it. Of Protobuf they are serialized descriptors in base64, else JSON.
    `shown` is the last one as a person has written it."""

    number: int
    kind: str
    texts: tuple[str, ...]
    shown: str = ""


def check_url(url: str) -> None:
    """Raises NotUnderstoodError."""
    try:
        parts = urllib.parse.urlsplit(url)
        has_login, is_url = "@" in parts.netloc, parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        has_login = is_url = False
    if has_login:
        raise NotUnderstoodError(f"--schema-registry: others on this machine can read arguments; put the login into {LOGIN}")
    if not is_url:
        raise NotUnderstoodError(f"--schema-registry {url}: it is http://HOST:PORT, or with https")


class Schemas(Protocol):
    """A Registry, or what asks one in another way. Both raise CommandError."""

    def get(self, number: int) -> Schema | None:
        """None if there is none of that id."""
        ...

    def newest(self, subject: str) -> Schema: ...


class Registry:
    """Owns the schemas that it was asked for. Several threads may ask."""

    def __init__(self, url: str, timeout_s: float, login: str = "") -> None:
        """`timeout_s` is for each answer as a whole. Raises NotUnderstoodError."""
        check_url(url)
        self._url, self._timeout_s, self._login = url.rstrip("/"), timeout_s, login
        self._known: dict[int, Schema] = {}
        self._open = urllib.request.build_opener(_StaysThere()).open

    def find(self, number: int) -> Schema | None:
        """What is known without asking."""
        return self._known.get(number)

    def get(self, number: int) -> Schema | None:
        """None if there is none of that id. Raises CommandError."""
        known = self.find(number)
        if known is not None:
            return known
        path = f"/schemas/ids/{number}"
        answer = self._ask(path)
        return None if answer is None else self._keep(number, answer, path)

    def newest(self, subject: str) -> Schema:
        """Raises CommandError."""
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"
        answer = self._ask(path)
        if answer is None:
            raise RefusedError(f"the schema registry has no subject {subject}")
        number = answer.get("id")
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise RefusedError(f"the schema registry has answered {path} without a schema's id")
        return self._keep(number, answer, path)

    def _keep(self, number: int, answer: dict[str, Any], path: str) -> Schema:
        kind = answer.get("schemaType") or AVRO
        try:
            schema = Schema(number, str(kind), tuple(self._texts(answer, path, kind, set())), answer["schema"])
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            raise RefusedError(f"the schema registry has answered {path} with references that are none") from e
        self._known[number] = schema
        while len(self._known) > 1 and (len(self._known) > KNOWN_MAX or sum(map(_size, [*self._known.values()])) > KNOWN_CHARACTERS_MAX):
            self._known.pop(next(iter(self._known)), None)
        return schema

    def _texts(self, answer: dict[str, Any], path: str, kind: str, seen: set[str]) -> list[str]:
        texts: list[str] = []
        for reference in answer.get("references") or ():
            of = f"/subjects/{urllib.parse.quote(reference['subject'], safe='')}/versions/{int(reference['version'])}"
            if of not in seen:
                seen.add(of)
                if len(seen) > REFERENCES_MAX:
                    raise RefusedError(f"the schema of {path} refers to more than {REFERENCES_MAX} others")
                if (found := self._ask(of)) is not None:
                    texts += self._texts(found, of, kind, seen)
        if kind == PROTOBUF:
            answer = self._ask(f"{path}?format=serialized") or answer
        return [*texts, answer["schema"]]

    def _ask(self, path: str) -> dict[str, Any] | None:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._login:
            headers["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._open(urllib.request.Request(self._url + path, headers=headers), timeout=self._timeout_s) as answer:
                found = json.loads(_read(answer, deadline))
        except urllib.error.HTTPError as e:
            e.close()
            if e.code == NOT_FOUND:
                return None
            raise RefusedError(f"the schema registry refuses {path}: {e.code} {printable(str(e.reason))}") from e
        except (OSError, http.client.HTTPException) as e:
            raise NoBrokerError(f"the schema registry {self._url} does not answer: {printable(str(e)) or type(e).__name__}") from e
        except (ValueError, RecursionError) as e:
            raise RefusedError(f"the schema registry has answered {path} with no JSON") from e
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise RefusedError(f"the schema registry has answered {path} with no schema")
        return found


class _StaysThere(urllib.request.HTTPRedirectHandler):
    """urllib would take the login along to wherever an answer leads. Without a new request, the answer is an error (HTTPError)."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read(answer: http.client.HTTPResponse, deadline_s: float) -> bytes:
    """A timeout of a socket is for each of its pieces; this is for all of them. Raises OSError."""
    pieces: list[bytes] = []
    size = 0
    while size < ANSWER_BYTES_MAX and (piece := answer.read1(PIECE_BYTES)):
        pieces.append(piece)
        size += len(piece)
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
    return b"".join(pieces)


def _size(schema: Schema) -> int:
    return len(schema.shown) + sum(map(len, schema.texts))
