"""Formats with the sizes of fields before them, as rpk reads and writes them: without a broker, and there and back at both kinds."""

from __future__ import annotations

from io import BytesIO

import pytest

from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.number_styles import Style
from barnabas.cli.produce.sized_format import SizedFormat
from barnabas.cli.record_json import JsonRecord
from tests.barnabas.cli.conftest import Command

ANY_BYTES = bytes(range(256))


def read(form: str, data: bytes, delimiter: bytes | None = None) -> list[JsonRecord]:
    made = SizedFormat(form, delimiter)
    return [made.parse(record, []) for record in made.split(BytesIO(data))]


@pytest.mark.parametrize(
    ("style", "number", "written"),
    [
        (None, -1, b"-1"), ("ascii", 300, b"300"), ("hex4", 10, b"a"), ("hex16", 300, b"012c"), ("hex64", 1, b"0000000000000001"),
        ("big16", 300, b"\x01\x2c"), ("little16", 300, b"\x2c\x01"), ("big32", -1, b"\xff\xff\xff\xff"), ("byte", 255, b"\xff"),
        ("little64", -1, b"\xff" * 8),
    ],
)  # fmt: skip
def test_number_is_written_and_read_back(style: str | None, number: int, written: bytes) -> None:
    assert Style(style).write(number) == written and Style(style).read(written) == number


@pytest.mark.parametrize(
    ("form", "data", "records"),
    [
        ("%V{big32}%v", b"\0\0\0\3a\nb\0\0\0\0\xff\xff\xff\xff", [(None, b"a\nb"), (None, b""), (None, None)]),
        ("%K,%V:%k%v\\n", b"1,3:kabc\n-1,0:\n", [(b"k", b"abc"), (None, b"")]),
        ("%V{2} %K{2}|%v%k;", b"03 01|abck;00 00|;", [(b"k", b"abc"), (b"", b"")]),
        ("%k=%V{hex8}%v", b"k=02ab=00", [(b"k", b"ab"), (b"", b"")]),
        ("%V{byte}%v{hex}%k{base64}.", b"\x040001YQ==.", [(b"a", b"\0\1")]),
        ("%R%s", b"\0\0\0\1x", [(None, b"x")]),
        ("%V %v\\n", b"1 x", [(None, b"x")]),
    ],
)  # fmt: skip
def test_fields_have_the_sizes_before_them(form: str, data: bytes, records: list[tuple[bytes | None, bytes | None]]) -> None:
    assert [(record.key, record.value) for record in read(form, data)] == records


def test_headers_partition_and_time_are_read() -> None:
    form = "%p{3}%T %H%h{[%K{byte}%k%V{byte}%v]}%V{byte}%v"
    record = b"007" + b"1700000000001 " + b"2" + b"[\1a\2xy]" + b"[\1b\xff" + b"v" * 255 + b"]" + b"\1z"

    (found,) = read(form, record)

    assert found == JsonRecord(None, b"z", [("a", b"xy"), ("b", b"v" * 255)], 7, 1_700_000_000_001)


def test_stream_that_comes_in_pieces_gives_the_same_records() -> None:
    class Slow(BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return super().read1(1)

    made = SizedFormat("%k::%V{big16}%v", b"\r\n")

    records = [made.parse(record, []) for record in made.split(Slow(b"a:b::\0\4::\r\n\r\nc::\0\0"))]

    assert [(record.key, record.value) for record in records] == [(b"a:b", b"::\r\n"), (b"c", b"")]


@pytest.mark.parametrize(
    ("form", "data", "why"),
    [
        ("%V{big32}%v", b"\0\0\0\5abc", "record 1: the input ends where 5 bytes should be"),
        ("%V{big32}%v", b"\0\0\0\1a\0", "record 2: the input ends where 4 bytes should be"),
        ("%V{big32}%v", b"\x7f\xff\xff\xff", "record 1: %V says 2147483647"),
        ("%V{little64}%v", b"\xfe" + b"\xff" * 7, "record 1: %V says -2"),
        ("%V:%v", b"x:y", "record 1: '' is no number"),
        ("%V:%v", b"9" * 40, "is the most"),
        ("%V{hex8}%v", b"0gxx", "'0g' is no number"),
        ("%V{1}:%v\\n", b"1:a\n2:ab;", "record 2: ';' is where '\\n' should be"),
        ("%H %h{%K%k}%V %v", b"200000 ", "%H says 200000"),
        ("%p %V %v", b"-1 1 x", "%p says -1"),
    ],
)
def test_what_is_not_of_the_format_is_told_with_its_record(form: str, data: bytes, why: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        read(form, data)

    assert why in str(refusal.value)


@pytest.mark.parametrize(
    "form",
    ["%v%V", "%V%v%V%k", "%V%S%v", "%V{big7}%v", "%V{x}%v", "%V", "%V%v%k", "%V%k", "%h{%k=%v}%V%v", "%H%h{%v}%V%v", "%H%h{%k=%p}%V%v",
     "%R{big32}%v", "%V%v{rot13}", "%x%V%v", "%V%v%h"],
)  # fmt: skip
def test_format_without_a_meaning_is_refused(form: str) -> None:
    with pytest.raises(NotUnderstoodError, match="format"):
        SizedFormat(form, None)


def test_any_bytes_come_back_as_they_were(command: Command, topic_name: str) -> None:
    form = "%p{hex16}%H{byte}%h{%K{byte}%k%V{big32}%v}%K{big32}%V{big32}%k%v"
    header = b"\1h" + b"\0\0\1\0" + ANY_BYTES + b"\1n" + b"\xff" * 4
    records = [
        b"0001" + b"\2" + header + b"\0\0\0\4" + b"\0\0\1\0" + b"N:\n\xff" + ANY_BYTES,
        b"0001" + b"\0" + b"\xff" * 4 + b"\xff" * 4,
        b"0001" + b"\0" + b"\0\0\0\0" + b"\0\0\0\4" + b"NULL",
    ]
    command.done("topic", "create", topic_name, "-p", "2")
    command.done("produce", topic_name, "-f", form, stdin=b"".join(records))

    assert command.done("consume", topic_name, "-e", "-f", form).raw == b"".join(records)
    cut = command("produce", topic_name, "-f", form, stdin=records[2] + b"0001\0")
    assert cut.code == 1 and "record 2: the input ends" in cut.err and cut.err.count("\n") == 1
    assert command.done("consume", topic_name, "-e", "-f", "%V %v\\n").raw.endswith(b"\xff\n-1 NULL\n4 NULL\n4 NULL\n")
