"""IP addresses as the names of quota entities and as the peers of connections: one text for each address.

Kafka also takes the name of a host, which the controller and each broker resolve on their own. That is refused here: nothing on the loop
may wait for a resolver, and nodes that resolve differently would have different quotas.
"""

from __future__ import annotations

import socket

_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv4 address begins with in IPv6's form. Java takes it for the IPv4 address."""


def find_address(text: str) -> str | None:
    """Returns the address's shortest text; None if `text` is none."""
    try:
        return socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError):
        pass
    try:
        packed = socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return None
    if packed.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, packed)
