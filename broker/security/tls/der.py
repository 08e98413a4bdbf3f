"""A reader of DER (X.690) for certificates and key stores: tags of one byte, definite lengths, nothing that lies outside its parent.

It reads what a peer sent, but only after OpenSSL has verified it, and files of the administrator.
"""

from __future__ import annotations

from typing import NamedTuple

INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
SEQUENCE = 0x30
SET = 0x31

_LENGTH_SIZE_MAX = 4
_OID_SIZE_MAX = 64
"""Bytes; the longest in use have under twenty."""


class DerError(ValueError):
    """Not DER, or not what was expected there."""


class Element(NamedTuple):
    """`encoded` has the tag and the length, too."""

    tag: int
    content: bytes
    encoded: bytes

    def children(self) -> list[Element]:
        """The elements that the content is made of."""
        return read_all(self.content)


def read_one(data: bytes) -> Element:
    """The only element of `data`. Raises DerError."""
    element, end = read_at(data, 0)
    if end != len(data):
        raise DerError("bytes after the end")
    return element


def read_all(data: bytes) -> list[Element]:
    elements = []
    position = 0
    while position < len(data):
        element, position = read_at(data, position)
        elements.append(element)
    return elements


def read_at(data: bytes, position: int) -> tuple[Element, int]:
    """The element at a position, and where it ends. Raises DerError."""
    start = position
    if position + 2 > len(data):
        raise DerError("cut off")
    tag, length = data[position], data[position + 1]
    position += 2
    if tag & 0x1F == 0x1F:
        raise DerError("a tag of several bytes")
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= _LENGTH_SIZE_MAX or position + size > len(data):
            raise DerError("no definite length")
        length = int.from_bytes(data[position : position + size], "big")
        position += size
    end = position + length
    if end > len(data):
        raise DerError("cut off")
    return Element(tag, data[position:end], data[start:end]), end


def children_of(element: Element, tag: int, count_min: int = 0) -> list[Element]:
    """The children of an element that must have this tag, and at least so many children."""
    if element.tag != tag:
        raise DerError(f"tag {element.tag:#x} instead of {tag:#x}")
    found = element.children()
    if len(found) < count_min:
        raise DerError("too few elements")
    return found


def content_of(element: Element, tag: int) -> bytes:
    if element.tag != tag:
        raise DerError(f"tag {element.tag:#x} instead of {tag:#x}")
    return element.content


def object_identifier(element: Element) -> str:
    """In dotted decimals."""
    content = content_of(element, OBJECT_IDENTIFIER)
    if not content or len(content) > _OID_SIZE_MAX or content[-1] & 0x80:
        raise DerError("no object identifier")
    arcs = []
    arc = 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
