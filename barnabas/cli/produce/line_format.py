"""Records by a format, as `consume -f` writes them: what is between two fields ends the first of them, and what comes last ends the record.

%v or %s value, %k key, %v{hex} and %k{base64} encoded; %h headers as a=b,c=d; %p partition, %T or %d timestamp in milliseconds. %t, %o, %e
and %i (topic, offset, leader epoch, number) are read over.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.cli.consume.formats import Field, parse
from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.record_json import JsonRecord

NAMES = {"v": "value", "s": "value", "k": "key", "h": "headers", "p": "partition", "T": "timestamp", "d": "timestamp"}
READ_OVER = "toei"
DECODERS: dict[str | None, Callable[[bytes], bytes]] = {
    None: lambda data: data,
    "hex": lambda data: bytes.fromhex(data.decode()),
    "base64": lambda data: base64.b64decode(data, validate=True),
}


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The fields of a line, each with what ends it (nothing for the last), after a beginning that has none."""

    beginning: bytes
    fields: list[tuple[Field, bytes]]
    delimiter: bytes | None
    """What ends a record; None if the format says nothing of it."""

    @classmethod
    def of(cls, text: str) -> LineFormat:
        """Raises NotUnderstoodError."""
        beginning, fields = b"", list[tuple[Field, bytes]]()
        for each in parse(text):
            if isinstance(each, bytes):
                if fields:
                    fields[-1] = fields[-1][0], fields[-1][1] + each
                else:
                    beginning += each
                continue
            if fields and not fields[-1][1]:
                raise NotUnderstoodError(f"format {text!r}: nothing is between %{fields[-1][0].letter} and %{each.letter}")
            _check(each)
            fields.append((each, b""))
        names = [NAMES[field.letter] for field, _ in fields if field.letter in NAMES]
        if not names or len(names) != len(set(names)):
            raise NotUnderstoodError(
                f"format {text!r}: it has a value, key, headers, partition and timestamp once, and one of them at least"
            )
        last, delimiter = fields[-1]
        fields[-1] = last, b""
        return cls(beginning, fields, delimiter or None)

    def parse(self, line: bytes) -> dict[str, bytes]:
        """The fields by their names, decoded. Raises NotUnderstoodError."""
        if not line.startswith(self.beginning):
            raise NotUnderstoodError(f"it does not begin with {_text(self.beginning)}")
        rest = line.removeprefix(self.beginning)
        found: dict[str, bytes] = {}
        for field, end in self.fields:
            data, rest = rest, b"" if not end else rest
            if end:
                data, is_there, rest = rest.partition(end)
                if not is_there:
                    raise NotUnderstoodError(f"there is no {_text(end)} after %{field.letter}")
            if field.letter in NAMES:
                try:
                    found[NAMES[field.letter]] = DECODERS[field.braces](data)
                except (ValueError, binascii.Error) as e:
                    raise NotUnderstoodError(f"{NAMES[field.letter]} is no {field.braces}: {e}") from e
        return found


def record_of(found: dict[str, bytes], headers: list[tuple[str, str | bytes | None]]) -> JsonRecord:
    """Without a value or key where the format has none. Raises NotUnderstoodError."""
    own = plain_headers(found.get("headers", b""))
    return JsonRecord(found.get("key"), found.get("value"), own + headers, _number(found, "partition"), _number(found, "timestamp"))


def plain_headers(text: bytes) -> list[tuple[str, str | bytes | None]]:
    """Of a=b,c=d. Raises NotUnderstoodError."""
    found: list[tuple[str, str | bytes | None]] = []
    for pair in text.split(b",") if text else ():
        name, _, value = pair.partition(b"=")
        try:
            found.append((name.decode(), value))
        except UnicodeDecodeError as e:
            raise NotUnderstoodError(f"a header's name is no UTF-8: {e}") from e
    return found


def _check(field: Field) -> None:
    """Raises NotUnderstoodError."""
    if field.letter not in NAMES and field.letter not in READ_OVER:
        known = " ".join(f"%{each}" for each in (*NAMES, *READ_OVER))
        raise NotUnderstoodError(f"format: %{field.letter} cannot be read; there are {known} %%")
    if field.braces is not None and (field.letter not in "kvs" or field.braces not in DECODERS):
        raise NotUnderstoodError(
            f"format: %{field.letter}{{{field.braces}}} cannot be read; there are {{hex}} and {{base64}} for %k and %v"
        )


def _number(found: dict[str, bytes], name: str) -> int | None:
    if name not in found:
        return None
    text = found[name]
    if not text.isdigit() or len(text) > 18:
        raise NotUnderstoodError(f"{name} is a number, not {_text(text)}")
    return int(text)


def _text(data: bytes) -> str:
    return repr(data[:40])[1:]
