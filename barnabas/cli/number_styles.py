"""How a format writes and reads numbers, by what rpk has between a field's braces: ascii, hex32, big32, little16, byte …"""

from __future__ import annotations

import re
from typing import Literal

from barnabas.cli.errors import NotUnderstoodError

_STYLE = re.compile(r"(?P<kind>hex)(?P<bits>4|8|16|32|64)|(?P<binary>big|little)(?P<width>8|16|32|64)|byte|ascii")
SIGNED_BITS = (32, 64)
"""Of binary numbers: -1, which says null, is all ones there. Smaller ones have no sign."""
STYLES = "ascii, hex4 to hex64, big8 to big64, little8 to little64, byte"


class Style:
    """`size` is how many bytes a number takes; None for ascii, as many as it has digits."""

    def __init__(self, text: str | None) -> None:
        """Raises NotUnderstoodError."""
        found = _STYLE.fullmatch(text or "ascii")
        if found is None:
            raise NotUnderstoodError(f"format: {{{text}}} is no way to write a number; there are {STYLES}")
        self._is_hex = found["kind"] is not None
        bits = int(found["bits"] or found["width"] or 8)
        self._order: Literal["big", "little"] = "little" if found["binary"] == "little" else "big"
        self._is_signed = found["binary"] is not None and bits in SIGNED_BITS
        self.size: int | None = bits // 4 if self._is_hex else bits // 8
        if found[0] == "ascii":
            self.size = None
        self._mask = (1 << bits) - 1

    def write(self, number: int) -> bytes:
        """A number that is too large loses its first digits, as in rpk."""
        if self.size is None:
            return b"%d" % number
        if self._is_hex:
            return b"%0*x" % (self.size, number & self._mask)
        return (number & self._mask).to_bytes(self.size, self._order)

    def read(self, data: bytes) -> int:
        """Of `size` bytes, or of the digits. Raises NotUnderstoodError."""
        if self.size is not None and not self._is_hex:
            return int.from_bytes(data, self._order, signed=self._is_signed)
        try:
            return int(data, 16 if self._is_hex else 10)
        except ValueError as e:
            raise NotUnderstoodError(f"{data[:40]!r}"[1:] + " is no number") from e
