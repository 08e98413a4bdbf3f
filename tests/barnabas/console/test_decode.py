"""Bytes as the pages show them."""

from __future__ import annotations

import json

from barnabas.console import decode


def test_json_gets_lines_and_keeps_its_words() -> None:
    text = r'{"a":1.10,"a":[],"b":{"c":"x\"}, {"},"d":[1e3,12345678901234567890]}'

    shown = decode.whole(text.encode())

    assert shown.kind == "JSON" and json.loads(shown.text) == json.loads(text)
    assert '  "a": 1.10,\n  "a": [],\n' in shown.text and r'"x\"}, {"' in shown.text and "12345678901234567890" in shown.text


def test_kinds() -> None:
    kinds = [decode.preview(data).kind for data in (None, b"", b"plain", b"17", b'{"a":1}', b'{"a":', b"\xff\xfe", b"a\x00b", "é".encode())]

    assert kinds == ["null", "empty", "text", "text", "JSON", "text", "binary", "binary", "text"]
    assert decode.preview(b"\x00\x00\x00\x00\x07\x02a").schema_id == 7
    assert decode.whole(bytes(range(20))).text.startswith("000000  00 01 02 03 ")


def test_deep_and_long_values_are_bounded() -> None:
    assert decode.whole(b"[" * 100_000).kind == "text"
    long = decode.whole(b"x" * 1_000_000)
    assert long.is_cut and len(long.text) == decode.WHOLE_BYTES
    line = decode.preview(("é" * 5_000).encode())
    assert line.is_cut and len(line.text) == decode.PREVIEW_CHARACTERS


def test_control_characters_cannot_turn_the_page() -> None:
    assert decode.preview("a\u202eb".encode()).text == "a\\u202eb"
