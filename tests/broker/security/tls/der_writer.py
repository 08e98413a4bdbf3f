"""Writes DER for the tests: names, and certificates without a valid signature."""

from __future__ import annotations

from collections.abc import Sequence

UTF8, PRINTABLE, T61, IA5, GENERAL, BMP, UNIVERSAL, NUMERIC, VISIBLE, OCTETS, BITS = (
    0x0C,
    0x13,
    0x14,
    0x16,
    0x1B,
    0x1E,
    0x1C,
    0x12,
    0x1A,
    0x04,
    0x03,
)


def tlv(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    encoded = bytearray()
    for arc in (first * 40 + second, *rest):
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(arc & 0x7F | 0x80)
        encoded += bytes(reversed(groups))
    return tlv(0x06, bytes(encoded))


def attribute(type_number: str, text: str | bytes, tag: int = UTF8) -> bytes:
    return tlv(0x30, oid(type_number), tlv(tag, text if isinstance(text, bytes) else text.encode()))


def name(*rdns: bytes | Sequence[bytes]) -> bytes:
    """Of attributes; a sequence of them is one RDN with several."""
    return tlv(0x30, *(tlv(0x31, *((rdn,) if isinstance(rdn, bytes) else rdn)) for rdn in rdns))
