"""Names other protocols by the four bytes that arrive where a frame's size is expected, so that the log says what is wrong.

The peer is nearly always a client set to security.protocol=SSL, a browser, or a load balancer's health check on the wrong port.
"""

from __future__ import annotations

from .errors import DecodeError

TLS = "TLS: this listener is PLAINTEXT"
HTTP = "HTTP: this listener speaks Kafka's protocol"
SSH = "SSH: this listener speaks Kafka's protocol"

_TLS_HANDSHAKE = b"\x16\x03"  # the content type of a ClientHello's record, and the first byte of its version
_FIRST_BYTES = {
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI "), HTTP),
    b"SSH-": SSH,
}


class ForeignProtocolError(DecodeError):
    """The peer does not speak Kafka's protocol. The message says which one it seems to speak."""


def refused_size(size: int, max_frame_size: int) -> DecodeError:
    """What to raise for a frame size, read as an int32, that is out of range."""
    first_bytes = size.to_bytes(4, "big", signed=True)
    protocol = TLS if first_bytes.startswith(_TLS_HANDSHAKE) else _FIRST_BYTES.get(first_bytes)
    if protocol is not None:
        return ForeignProtocolError(f"looks like {protocol}")
    return DecodeError(f"frame of {size} bytes; at most {max_frame_size} are accepted")
