"""Avro schemas by id: of a schema registry, as Confluent's and Apicurio's are, or of a folder's files ID.avsc.

What a registry has under an id never changes, so a task asks once. A registry that is away is no reason for a dead letter: it is asked
again for RETRY_S, and then the task fails.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..errors import BrokerError, OptionError
from .naming import read_file

ANSWER_TIMEOUT_S = 10.0
RETRY_S = 30.0
RETRY_PAUSE_S = 1.0
ANSWER_SIZE_MAX = 10_000_000
SUFFIX = ".avsc"
READER = "reader" + SUFFIX
SERVER_ERROR = 500


class SchemaText(NamedTuple):
    """A schema as JSON, and those that it refers to, in the order in which they have to be parsed."""

    schema: str
    references: tuple[str, ...] = ()


class Schemas(Protocol):
    """Is pickled for the tasks."""

    def find(self, number: int) -> SchemaText | None:
        """The schema with this id. None if there is none, or one that isn't Avro."""
        ...


class FolderSchemas:
    def __init__(self, folder: str) -> None:
        """Reads all of them now, for workers that do not see the folder. OptionError if there are none."""
        files = sorted(Path(folder).glob(f"*{SUFFIX}"))
        self._texts = {int(file.stem): SchemaText(_text(file)) for file in files if file.stem.isdecimal()}
        if not self._texts:
            raise OptionError(f"{folder} has no file like 1{SUFFIX}: a schema's id and {SUFFIX}")

    def find(self, number: int) -> SchemaText | None:
        return self._texts.get(number)

    def newest(self) -> SchemaText:
        return self._texts[max(self._texts)]


class Registry:
    """`login` is user:password. A path of the URL comes before that of the API."""

    def __init__(self, url: str, login: str | None = None) -> None:
        """OptionError for what is no URL."""
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname:
            raise OptionError(f"{url} is no URL of a schema registry")
        if parts.username is not None:
            login = login or f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/")).geturl()
        self._login = login

    def find(self, number: int) -> SchemaText | None:
        return self._schema(f"/schemas/ids/{number}")

    def newest(self, subject: str) -> SchemaText:
        """For a job's start, which asks once. Raises OptionError if there is no such subject, or if it isn't Avro."""
        found = self._schema(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest", retry_s=0)
        if found is None:
            raise OptionError(f"the registry {self._url} has no Avro schema of the subject {subject}; name another after #")
        return found

    def _schema(self, path: str, retry_s: float = RETRY_S) -> SchemaText | None:
        answer = self._get(path, retry_s)
        if answer is None or answer.get("schemaType", "AVRO") != "AVRO":
            return None
        return SchemaText(answer["schema"], tuple(self._references(answer, seen=set())))

    def _references(self, answer: dict[str, Any], seen: set[str]) -> list[str]:
        """Those of the references come first."""
        texts: list[str] = []
        for reference in answer.get("references", ()):
            path = f"/subjects/{urllib.parse.quote(reference['subject'], safe='')}/versions/{reference['version']}"
            if path not in seen:
                seen.add(path)
                found = self._get(path, RETRY_S)
                if found is not None:
                    texts += [*self._references(found, seen), found["schema"]]
        return texts

    def _get(self, path: str, retry_s: float) -> dict[str, Any] | None:
        """The answer's JSON; None for 404. Raises BrokerError when the registry stays away or refuses."""
        deadline = time.monotonic() + retry_s
        while True:
            try:
                with urllib.request.urlopen(self._request(path), timeout=ANSWER_TIMEOUT_S) as answer:
                    found = json.loads(answer.read(ANSWER_SIZE_MAX))
                    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
                        raise BrokerError(f"the registry {self._url} has answered {path} with no schema")
                    return found
            except urllib.error.HTTPError as e:
                if e.code == 404:
                    return None
                if e.code < SERVER_ERROR or time.monotonic() >= deadline:
                    raise BrokerError(f"the registry {self._url} refuses {path}: {e.code} {e.reason}") from e
            except (OSError, ValueError) as e:  # ValueError: what isn't JSON
                if time.monotonic() >= deadline:
                    raise BrokerError(f"the registry {self._url} does not answer: {e}") from e
            time.sleep(RETRY_PAUSE_S)

    def _request(self, path: str) -> urllib.request.Request:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        return urllib.request.Request(self._url + path, headers=headers)


def _text(path: Path) -> str:
    try:
        return read_file(str(path)).decode()
    except UnicodeDecodeError as e:
        raise OptionError(f"the schema {path} is not UTF-8") from e
