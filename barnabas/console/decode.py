"""Bytes of records as a person reads them: JSON, text, or hexadecimal digits. Nothing is added and nothing is lost but spaces."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from barnabas.cli.output import printable
from barnabas.cli.schemas.framed import schema_id
from barnabas.console.values import Named, Value

PREVIEW_CHARACTERS = 320
WHOLE_BYTES = 262_144
"""Of a value on its own page; the download has all of it."""
HEX_BYTES = 4_096
HEX_WIDTH = 16
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Shown(NamedTuple):
    """`kind` is null, empty, JSON, text or binary; `is_cut` if there is more than `text`. `schema_id` is what binary
    data begin with."""

    kind: str
    text: str
    is_cut: bool = False
    schema_id: int | None = None
    schema: Named | None = None
    why: str = ""

    def of(self, value: Value) -> Shown:
        """With what is known of the schema."""
        return self._replace(schema=value.schema, why=value.why)


def preview(data: bytes | None) -> Shown:
    """In one line."""
    kind, text, schema_id = _read(data, PREVIEW_CHARACTERS * 4)
    if kind == "binary":
        text = data[:64].hex(" ") if data else ""
    line = printable(" ".join(text[: PREVIEW_CHARACTERS * 4].split()))
    return Shown(kind, line[:PREVIEW_CHARACTERS], len(line) > PREVIEW_CHARACTERS or (kind == "binary" and len(data or b"") > 64), schema_id)


def whole(data: bytes | None) -> Shown:
    """With lines: JSON is indented, binary data are a dump."""
    kind, text, schema_id = _read(data, WHOLE_BYTES)
    is_cut = len(data or b"") > WHOLE_BYTES
    if kind == "JSON":
        text = indented(text)
    elif kind == "binary":
        text, is_cut = dump((data or b"")[:HEX_BYTES]), len(data or b"") > HEX_BYTES
    return Shown(kind, "\n".join(printable(line) for line in text.split("\n")), is_cut, schema_id)


def indented(text: str) -> str:
    """Valid JSON with lines; numbers, doubled keys and escapes stay as they are."""
    parts: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            parts.append(token if before in ("{", "[") else f"\n{'  ' * depth}{token}")
        else:
            parts.append(f"\n{'  ' * depth}" if before in ("{", "[", ",") else "")
            parts.append(f"{token} " if token == ":" else token)
        depth += token in ("{", "[")
        before = token
    return "".join(parts)


def dump(data: bytes) -> str:
    """Positions, digits, and the characters that are ASCII."""
    lines = []
    for first in range(0, len(data), HEX_WIDTH):
        row = data[first : first + HEX_WIDTH]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{first:06x}  {row.hex(' '):{3 * HEX_WIDTH}} {characters}")
    return "\n".join(lines)


def _read(data: bytes | None, size_max: int) -> tuple[str, str, int | None]:
    """The kind, the text and a schema's id. Of cut data the kind is told by their beginning."""
    if data is None:
        return "null", "", None
    if not data:
        return "empty", "", None
    try:
        text = data[:size_max].decode("utf-8", "strict" if len(data) <= size_max else "ignore")
    except UnicodeDecodeError:
        return "binary", "", schema_id(data)
    if _NO_TEXT.search(text):
        return "binary", "", schema_id(data)
    return ("JSON" if len(data) <= size_max and _is_json(text) else "text"), text, None


def _is_json(text: str) -> bool:
    """Of an object or a list; a number alone is a text as well."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
