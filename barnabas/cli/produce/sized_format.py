"""Records whose fields have their sizes before them, by rpk's formats: '%K{big32}%V{big32}%k%v'. Any bytes can be in them.

%K size of the key, %V or %S of the value, %R of the value as four bytes, %H number of headers: in the styles of number_styles.py, or {3}
for three digits. Size -1 is null. A field with a size has so many bytes, one without ends before what follows it. %h{…} with %K, %k, %V
and %v is read as often as %H says. The other fields are those of line_format.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO, NoReturn

from barnabas.cli.consume.formats import Field, parse
from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.number_styles import Style
from barnabas.cli.produce.line_format import DECODERS, NAMES, READ_OVER, plain_headers
from barnabas.cli.record_json import JsonRecord

SIZES = {"K": "k", "V": "v", "S": "v", "R": "v", "H": "h"}
NUMBERS = frozenset("KVSRHpTdoei")
SIZE_MAX = 1 << 30
"""librdkafka takes no larger message."""
HEADERS_MAX = 100_000
DIGITS_MAX = 20
NUMBER_END = 10**18
READ_BYTES = 1 << 16
Header = tuple[str, str | bytes | None]


def has_sizes(text: str) -> bool:
    """Whether a format says sizes. Raises NotUnderstoodError."""
    return any(isinstance(each, Field) and each.letter in SIZES for each in parse(text))


class Source:
    """Owns what is read of a stream and not yet taken. What ends too early raises NotUnderstoodError."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._position = 0

    def is_at_end(self) -> bool:
        return not self._has(1)

    def record(self) -> bytes:
        """What was taken since the last call."""
        taken = bytes(self._buffer[: self._position])
        del self._buffer[: self._position]
        self._position = 0
        return taken

    def take(self, size: int) -> bytes:
        if not self._has(size):
            raise NotUnderstoodError(f"the input ends where {size} bytes should be")
        return self._next(size)

    def digits(self) -> bytes:
        """With a sign before them."""
        size = 0
        while size <= DIGITS_MAX and self._has(size + 1):
            byte = self._buffer[self._position + size]
            if not (48 <= byte <= 57 or (byte == 45 and not size)):
                break
            size += 1
        return self._next(size)

    def until(self, end: bytes) -> bytes:
        """What is before `end`, or all that is left. Takes no more than that."""
        searched = self._position
        while (found := self._buffer.find(end, searched)) < 0:
            searched = max(len(self._buffer) - len(end) + 1, self._position)
            if len(self._buffer) - self._position > SIZE_MAX:
                raise NotUnderstoodError(f"no {_text(end)} in {SIZE_MAX} bytes")
            if not self._read():
                return self._next(len(self._buffer) - self._position)
        return self._next(found - self._position)

    def expect(self, constant: bytes, *, may_end: bool) -> None:
        if may_end and self.is_at_end():
            return
        found = self.take(min(len(constant), self._left(len(constant))))
        if found != constant:
            raise NotUnderstoodError(f"{_text(found)} is where {_text(constant)} should be")

    def _left(self, size: int) -> int:
        self._has(size)
        return len(self._buffer) - self._position

    def _next(self, size: int) -> bytes:
        taken = bytes(self._buffer[self._position : self._position + size])
        self._position += size
        return taken

    def _has(self, size: int) -> bool:
        while len(self._buffer) - self._position < size:
            if not self._read():
                return False
        return True

    def _read(self) -> bool:
        data: bytes = self._stream.read1(READ_BYTES)  # type: ignore[attr-defined]
        self._buffer += data
        return bool(data)


@dataclass(slots=True)
class _Found:
    """Of one record, or of one header."""

    texts: dict[str, bytes | None] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    headers: list[Header] = field(default_factory=list)


class SizedFormat:
    """The fields of a record and what is between them."""

    def __init__(self, text: str, delimiter: bytes | None, *, is_header: bool = False) -> None:
        """`delimiter` ends each record, besides what the format says. Raises NotUnderstoodError."""
        self._text = text
        self._items: list[Field | bytes] = []
        for each in parse(text):
            if isinstance(each, bytes) and self._items and isinstance(self._items[-1], bytes):
                self._items[-1] += each
            else:
                self._items.append(each)
        if delimiter is not None:
            self._items.append(delimiter)
        self._inner: SizedFormat | None = None
        self._check(is_header=is_header)
        self._styles = {index: Style(each.braces) for index, each in self._numbers() if not (each.braces or "").isdigit()}

    def split(self, stream: BinaryIO) -> Iterator[bytes]:
        """The bytes of each record, as soon as they are there. Raises RefusedError."""
        source, count = Source(stream), 0
        while not source.is_at_end():
            count += 1
            try:
                self._read(source)
            except NotUnderstoodError as e:
                raise RefusedError(f"record {count}: {e}") from e
            yield source.record()

    def parse(self, record: bytes, headers: list[Header]) -> JsonRecord:
        """Raises NotUnderstoodError."""
        source = Source(BytesIO(record))
        found = self._read(source)
        if not source.is_at_end():
            raise NotUnderstoodError("it goes on after its end")
        timestamp_ms = found.numbers.get("T", found.numbers.get("d"))
        return JsonRecord(found.texts.get("k"), found.texts.get("v"), found.headers + headers, found.numbers.get("p"), timestamp_ms)

    def _read(self, source: Source) -> _Found:
        found, sizes, last = _Found(), dict[str, int](), len(self._items) - 1
        for index, item in enumerate(self._items):
            if isinstance(item, bytes):
                source.expect(item, may_end=index == last)
            elif item.letter in NUMBERS:
                number = self._number(source, index, item)
                if item.letter in SIZES:
                    sizes[SIZES[item.letter]] = _checked(number, item)
                else:
                    found.numbers[item.letter] = number
            elif item.letter == "h":
                self._headers(source, index, item, sizes, found)
            else:
                letter = "v" if item.letter == "s" else item.letter
                found.texts[letter] = self._data(source, index, item, sizes.get(letter))
        return found

    def _number(self, source: Source, index: int, item: Field) -> int:
        style = self._styles.get(index)
        if style is None:
            assert item.braces is not None, "a number of digits"
            number = Style(None).read(source.take(int(item.braces)))
        else:
            number = style.read(source.digits() if style.size is None else source.take(style.size))
        if item.letter not in SIZES and not 0 <= number < NUMBER_END:
            raise NotUnderstoodError(f"%{item.letter} says {number}")
        return number

    def _data(self, source: Source, index: int, item: Field, size: int | None) -> bytes | None:
        if size is not None and size < 0:
            return None
        data = source.until(self._end_of(index)) if size is None else source.take(size)
        if item.letter not in NAMES:
            return data
        try:
            return DECODERS[item.braces](data)
        except ValueError as e:
            raise NotUnderstoodError(f"{NAMES[item.letter]} is no {item.braces}: {e}") from e

    def _headers(self, source: Source, index: int, item: Field, sizes: dict[str, int], found: _Found) -> None:
        if self._inner is None:
            found.headers += plain_headers(self._data(source, index, item, None) or b"")
            return
        for _ in range(sizes["h"]):
            one = self._inner._read(source).texts
            try:
                found.headers.append(((one["k"] or b"").decode(), one.get("v")))
            except UnicodeDecodeError as e:
                raise NotUnderstoodError(f"a header's name is no UTF-8: {e}") from e

    def _end_of(self, index: int) -> bytes:
        end = self._items[index + 1]
        assert isinstance(end, bytes), "checked when it was made"
        return end

    def _numbers(self) -> Iterator[tuple[int, Field]]:
        return ((index, each) for index, each in enumerate(self._items) if isinstance(each, Field) and each.letter in NUMBERS)

    def _check(self, *, is_header: bool) -> None:
        """Raises NotUnderstoodError."""
        seen: set[str] = set()  # fields, and sizes as # before what they are of
        known = (*"kvKV",) if is_header else (*NAMES, *READ_OVER, *SIZES)
        for index, item in enumerate(self._items):
            if isinstance(item, bytes):
                continue
            letter = "v" if item.letter == "s" else item.letter
            mark = f"#{SIZES[letter]}" if letter in SIZES else letter
            if item.letter not in known or (letter == "R" and item.braces is not None):
                self._refuse(f"%{item.letter} cannot be read there; there are {' '.join(f'%{each}' for each in known)}")
            if mark in seen or mark.removeprefix("#") in seen:
                self._refuse(f"%{item.letter} is there twice, or after what it is the size of")
            seen.add(mark)
            if letter == "R":
                self._items[index] = Field("R", "big32")
            if letter == "h" and item.braces is not None:
                if "#h" not in seen:
                    self._refuse("%H comes before %h{…}, and says how many headers there are")
                self._inner = SizedFormat(item.braces, None, is_header=True)
            elif letter in "kvht" and item.braces not in DECODERS:
                self._refuse("there are {hex} and {base64} for %k and %v")
            elif letter in "kvht" and (f"#{letter}" not in seen or letter == "h") and not self._has_end(index):
                self._refuse(f"what ends %{item.letter}? Its size comes before it, or a character after it")
        if not ({"k"} if is_header else {"k", "v"}) & seen:
            self._refuse("it has no %k" if is_header else "it has neither key nor value")

    def _refuse(self, why: str) -> NoReturn:
        raise NotUnderstoodError(f"format {self._text!r}: {why}")

    def _has_end(self, index: int) -> bool:
        return index + 1 < len(self._items) and isinstance(self._items[index + 1], bytes)


def _checked(number: int, item: Field) -> int:
    limit = HEADERS_MAX if item.letter == "H" else SIZE_MAX
    if not -1 <= number <= limit or (number < 0 and item.letter == "H"):
        raise NotUnderstoodError(f"%{item.letter} says {number}, and {limit} is the most")
    return number


def _text(data: bytes) -> str:
    return repr(data[:40])[1:]
