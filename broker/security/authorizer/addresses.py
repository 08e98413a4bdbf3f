"""The host of ACLs: an address as Java's InetAddress.getHostAddress writes it, so IPv6 without `::`."""

from __future__ import annotations

import socket
import struct

_MAPPED = bytes(10) + b"\xff\xff"
"""How the IPv6 form of an IPv4 address begins. Java makes it an IPv4 address."""


def java_address(packed: bytes) -> str:
    """Returns the text of an address of 4 or 16 bytes: `10.0.0.1`, `0:0:0:0:0:0:0:1`. Raises ValueError for another size."""
    if len(packed) == 16 and packed.startswith(_MAPPED):
        packed = packed[len(_MAPPED) :]
    if len(packed) == 4:
        return ".".join(map(str, packed))
    if len(packed) != 16:
        raise ValueError(f"an address has 4 or 16 bytes, not {len(packed)}")
    return ":".join(f"{group:x}" for group in struct.unpack(">8H", packed))


def java_address_of(text: str) -> str:
    """Returns the same for an address as the system writes it, such as `::1`. The zone of a link-local address stays (`%eth0`). Raises
    ValueError for what is not an address."""
    host, _, zone = text.partition("%")
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except (OSError, ValueError) as error:
        raise ValueError(f"not an address: {text!r}") from error
    return f"{java_address(packed)}%{zone}" if zone else java_address(packed)
