"""Formats of records: kcat's and rpk's `-f`, JSON, hex and plain values. Each makes the bytes of a batch, which are written at once.

Of kcat: %s value, %S its size (-1 for null), %R the size as four bytes, %k key, %K its size, %t topic, %p partition, %o offset, %T time in
milliseconds, %h headers as a=b,c=d. Of rpk: %v value, %V its size, %d time, %e leader epoch, %H number of headers, %i number of the record,
%h{…} for each header with %k, %v and their sizes %K, %V in it, %v{hex} and %v{base64} (also %k and %s), numbers as in number_styles.py
(%V{big32}), %%, %{ and %}. Where they conflict, kcat's meaning counts: %T is the time, not the size of the topic's name. %x, %y and %a are
not there: librdkafka does not tell a producer's id and attributes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Message

from barnabas.cli.consume.json_lines import to_lines
from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.number_styles import Style
from barnabas.cli.output import CONTROL

NULL = b"NULL"
Piece = Callable[[Any], bytes]
Write = Callable[[Sequence[Any]], bytes]

_TOKEN = re.compile(
    r"""%(?P<letter>[A-Za-z%{}]) (?P<braces>\{(?:[^{}]|\{[^{}]*\})*\})?
    | (?P<text>(?:[^%\\]|\\(?:x[0-9A-Fa-f]{2}|[0-7]{1,3}|.))+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "e": "\x1b"}
_UNKNOWN_TO_US = "xya"
SIZE_OF = {"K": "k", "V": "v", "S": "s"}
"""Sizes by the letters of what they are of."""
WITH_BRACES = "kvshKVSHpoe"
"""Letters that may have some; whether they mean something depends on who reads them."""


def plain(messages: Sequence[Any]) -> bytes:
    """A value a line."""
    values: list[Any] = [*map(Message.value, messages)]
    if None in values:
        values = [NULL if value is None else value for value in values]
    values.append(b"")
    return b"\n".join(values)


def as_json(messages: Sequence[Any]) -> bytes:
    """An object a line (record_json.py)."""
    return to_lines(messages).encode()


def formatted(text: str) -> Write:
    """What writes each record by a format string. Raises NotUnderstoodError."""
    fields = [*parse(text)]
    sized = {SIZE_OF[each.letter] for each in fields if isinstance(each, Field) and each.letter in SIZE_OF and each.braces is not None}
    pieces = [_constant(each) if isinstance(each, bytes) else _piece(each, null=b"" if each.letter in sized else NULL) for each in fields]
    count = 0

    def write(messages: Sequence[Any]) -> bytes:
        return b"".join([piece(message) for message in messages for piece in pieces])

    def numbered(messages: Sequence[Any]) -> bytes:
        nonlocal count
        made = []
        for message in messages:
            count += 1
            made += [b"%d" % count if piece is _number_of_record else piece(message) for piece in pieces]
        return b"".join(made)

    return numbered if _number_of_record in pieces else write


HEX = "%k{hex} %v{hex}\\n"


def for_terminal(data: bytes) -> bytes:
    """What gives a terminal no orders: control characters and bytes that are no UTF-8 as \\x1b, line ends and tabs as they are."""
    text = data.decode(errors="backslashreplace")
    return CONTROL.sub(lambda found: found[0] if found[0] in "\n\t" else ascii(found[0])[1:-1], text).encode()


class Field(NamedTuple):
    """A letter after %, and what is between its braces; None where it has none."""

    letter: str
    braces: str | None


def parse(text: str) -> Iterator[Field | bytes]:
    """The fields of a format and the characters between them. Raises NotUnderstoodError."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise NotUnderstoodError(f"format {text!r}: {text[position : position + 2]!r} at character {position + 1} means nothing")
        position = found.end()
        if found["text"] is not None:
            yield _unescape(found["text"])
        elif found["letter"] in "%{}":
            yield found["letter"].encode()
            position -= len(found["braces"] or "")
        else:
            if found["braces"] is not None and found["letter"] not in WITH_BRACES:
                raise NotUnderstoodError(f"format {text!r}: %{found['letter']} has no braces")
            yield Field(found["letter"], None if found["braces"] is None else found["braces"][1:-1])


def _piece(field: Field, *, null: bytes) -> Piece:
    letter, inside = field
    if letter in _UNKNOWN_TO_US:
        raise NotUnderstoodError(f"format: %{letter} is not told by librdkafka (a producer's id and epoch, a record's attributes)")
    if letter == "h" and inside is not None:
        return _each_header(inside)
    if letter in "kvs" and inside is not None:
        get = _key if letter == "k" else _value
        encode = {"hex": lambda data: data.hex().encode(), "base64": base64.b64encode}.get(inside)
        if encode is None:
            raise NotUnderstoodError(f"format: %{letter}{{{inside}}}: it is hex or base64")
        return lambda message: null if (data := get(message)) is None else encode(data)
    if letter in "kvs" and not null:
        get = _key if letter == "k" else _value
        return lambda message: get(message) or b""
    if letter in _NUMBERS and inside is not None:
        number, style = _NUMBERS[letter], Style(inside)
        return lambda message: style.write(number(message))
    piece = _PIECES.get(letter)
    if piece is None:
        raise NotUnderstoodError(f"format: %{letter} means nothing; there are %{' %'.join(sorted(_PIECES))} %%")
    return piece


def _each_header(inside: str) -> Piece:
    fields = [*parse(inside)]
    is_sized = any(isinstance(each, Field) and each.letter == "V" and each.braces is not None for each in fields)
    parts = [_of_header(each, inside, is_sized=is_sized) for each in fields]

    def piece(message: Any) -> bytes:
        headers = [(name.encode(), value) for name, value in message.headers() or ()]
        return b"".join(part(header) for header in headers for part in parts)

    return piece


def _of_header(each: Field | bytes, inside: str, *, is_sized: bool) -> Callable[[tuple[bytes, bytes | None]], bytes]:
    """A part of what is written of a header, its name and value."""
    if isinstance(each, bytes):
        return lambda header: each
    index = 0 if each.letter in "kK" else 1
    if each.letter in "KV":
        style = Style(each.braces)
        return lambda header: style.write(_size(header[index]))
    if each.letter not in "kv" or each.braces is not None:
        raise NotUnderstoodError(f"format: %h{{{inside}}}: there are %k and %v inside, and their sizes %K and %V")
    null = b"" if is_sized else NULL
    return lambda header: null if (data := header[index]) is None else data


def _constant(data: bytes) -> Piece:
    return lambda message: data


def _unescape(text: str) -> bytes:
    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] == "x" and len(code) == 3:
            return chr(0xDC00 + int(code[1:], 16)) if int(code[1:], 16) > 0x7F else chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0x7F)
        return _ESCAPED.get(code, code)

    # Bytes above 0x7f are carried as lone surrogates, which no text has.
    return _ESCAPE.sub(replace, text).encode("utf-8", "surrogateescape")


def _key(message: Any) -> bytes | None:
    key: bytes | None = message.key()
    return key


def _value(message: Any) -> bytes | None:
    value: bytes | None = message.value()
    return value


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (NULL if value is None else value) for name, value in message.headers() or ())


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def _time(message: Any) -> bytes:
    return b"%d" % message.timestamp()[1]


def _in_digits(number: Callable[[Any], int]) -> Piece:
    return lambda message: b"%d" % number(message)


def _number_of_record(message: Any) -> bytes:
    raise AssertionError("the writer counts")


_NUMBERS: dict[str, Callable[[Any], int]] = {
    "S": lambda message: _size(message.value()),
    "V": lambda message: _size(message.value()),
    "K": lambda message: _size(message.key()),
    "p": lambda message: int(message.partition()),
    "o": lambda message: int(message.offset()),
    "e": _epoch,
    "H": lambda message: len(message.headers() or ()),
}
_PIECES: dict[str, Piece] = {
    "s": lambda message: NULL if (value := message.value()) is None else value,
    "v": lambda message: NULL if (value := message.value()) is None else value,
    "R": lambda message: _size(message.value()).to_bytes(4, "big", signed=True),
    "k": lambda message: NULL if (key := message.key()) is None else key,
    "t": lambda message: message.topic().encode(),
    "T": _time,
    "d": _time,
    "h": _headers,
    **{letter: _in_digits(number) for letter, number in _NUMBERS.items()},
    "i": _number_of_record,
}
