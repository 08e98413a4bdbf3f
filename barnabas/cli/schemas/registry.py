"""Schemas of a registry with Confluent's API: by their ids, and the newest of a subject. What an id has never changes, so it is asked once.

A login is `user:password` in BARNABAS_SCHEMA_REGISTRY_LOGIN: others on the machine can read arguments.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from barnabas.cli.errors import NoBrokerError, NotUnderstoodError, RefusedError

LOGIN = "BARNABAS_SCHEMA_REGISTRY_LOGIN"
ANSWER_BYTES_MAX = 10_000_000
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
NOT_FOUND = 404


class Schema(NamedTuple):
    """`texts` are those that the last one refers to, before it. Of Protobuf they are serialized descriptors in base64, else JSON."""

    number: int
    kind: str
    texts: tuple[str, ...]


class Registry:
    """Owns the schemas that it was asked for."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Raises NotUnderstoodError."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NotUnderstoodError(f"--schema-registry {url}: it is http://HOST:PORT, or with https")
        if parts.password is not None:
            raise NotUnderstoodError(f"--schema-registry: others on this machine can read arguments; put the login into {LOGIN}")
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._known: dict[int, Schema] = {}

    def get(self, number: int) -> Schema | None:
        """None if there is none of that id. Raises CommandError."""
        if number not in self._known:
            answer = self._ask(f"/schemas/ids/{number}")
            if answer is None:
                return None
            self._known[number] = self._schema(number, answer, f"/schemas/ids/{number}")
        return self._known[number]

    def newest(self, subject: str) -> Schema:
        """Raises CommandError."""
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"
        answer = self._ask(path)
        if answer is None:
            raise RefusedError(f"the schema registry has no subject {subject}")
        number = int(answer["id"])
        self._known[number] = self._schema(number, answer, path)
        return self._known[number]

    def _schema(self, number: int, answer: dict[str, Any], path: str) -> Schema:
        kind = answer.get("schemaType", AVRO)
        return Schema(number, kind, tuple(self._texts(answer, path, kind, set())))

    def _texts(self, answer: dict[str, Any], path: str, kind: str, seen: set[str]) -> list[str]:
        texts: list[str] = []
        for reference in answer.get("references") or ():
            of = f"/subjects/{urllib.parse.quote(reference['subject'], safe='')}/versions/{reference['version']}"
            if of not in seen:
                seen.add(of)
                if (found := self._ask(of)) is not None:
                    texts += self._texts(found, of, kind, seen)
        if kind == PROTOBUF:
            answer = self._ask(f"{path}?format=serialized") or answer
        return [*texts, answer["schema"]]

    def _ask(self, path: str) -> dict[str, Any] | None:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if login := os.environ.get(LOGIN):
            headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self._url + path, headers=headers), timeout=self._timeout_s) as answer:
                found = json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as e:
            if e.code == NOT_FOUND:
                return None
            raise RefusedError(f"the schema registry refuses {path}: {e.code} {e.reason}") from e
        except OSError as e:
            raise NoBrokerError(f"the schema registry {self._url} does not answer: {e}") from e
        except ValueError as e:
            raise RefusedError(f"the schema registry has answered {path} with no JSON") from e
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise RefusedError(f"the schema registry has answered {path} with no schema")
        return found
