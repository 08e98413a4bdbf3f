"""TlsLayer: TLS without a transport, by an SSLObject between two MemoryBIOs.

The caller reads ciphertext from the peer into `feed`, and sends what `take` gives it. Everything in between is here: the handshake,
plaintext in and out, close_notify, alerts, answers to KeyUpdate. Nothing waits here, and nothing is lost when the peer takes nothing:
`unsent_size` counts the ciphertext that is to be sent, `unread_size` what was received and is not read yet. The second matters after a
pause: no event of the socket announces that.

After each call there may be ciphertext to send, also after an error: it is the alert that tells the peer why.

Source: SslTransportLayer.
"""

from __future__ import annotations

import ssl
from enum import Enum

INBOUND_SIZE_MAX = 64 * 1024
"""Bytes of one `feed`: measured as the cheapest size of a read, 0.5 s of CPU for each GB."""

OUTBOUND_SIZE_MAX = 256 * 1024
"""Bytes of one `write`: 0.55 s of CPU for each GB, and 0.2 ms in one call."""

_NOT_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "BAD_RECORD_TYPE", "RECORD_TOO_SMALL", "UNEXPECTED_MESSAGE", "INVALID_CONTENT_TYPE")


class TlsError(Exception):
    """The connection has failed: `str()` is one line for the log. What `take` gives is still to be sent."""


class End(Enum):
    """How the peer ended its side."""

    CLOSED = "with close_notify"
    CUT = "without close_notify"


class TlsLayer:
    """One connection's TLS. `server_hostname` is for the side that connects: the name that is verified and sent (SNI)."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, server_hostname: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server, server_hostname=server_hostname)
        self._is_shut = False
        self.is_established = False
        self.end: End | None = None

    def feed(self, ciphertext: bytes | bytearray | memoryview) -> None:
        """What the peer sent, INBOUND_SIZE_MAX bytes at most."""
        assert len(ciphertext) <= INBOUND_SIZE_MAX, "more than one read at a time"
        self._incoming.write(ciphertext)

    def feed_end(self) -> None:
        """The peer sends no more. What it sent before can still be read."""
        self._incoming.write_eof()

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done. Raises TlsError, also when the peer has gone."""
        if not self.is_established:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError as e:
                raise TlsError(f"TLS handshake failed: {_reason(e)}") from e
            self.is_established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into the buffer until it is full or no whole record is left; returns the count of bytes. Raises TlsError.

        One call of OpenSSL gives one record at most, and librdkafka's are 3 KB: a caller that handled each alone would spend half as much
        again. A buffer that is not full means that more has to be fed, or that the peer has ended: `end` says
        so then.
        """
        assert self.is_established, "the handshake comes first"
        size = 0
        while size < len(buffer) and self.end is None:
            try:
                count: int = self._tls.read(len(buffer) - size, buffer[size:])  # type: ignore[assignment]  # a count, with a buffer
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.end = End.CLOSED
                break
            except ssl.SSLEOFError:
                self.end = End.CUT
                break
            except ssl.SSLError as e:
                raise TlsError(f"TLS failed: {_reason(e)}") from e
            if count == 0:  # what OpenSSL's read says of an end where Python has no exception for it
                self.end = End.CLOSED
                break
            size += count
        return size

    def write(self, plaintext: bytes | bytearray | memoryview) -> None:
        """Encrypt all of it, OUTBOUND_SIZE_MAX bytes at most. Each call begins a record: join small chunks before. Raises TlsError."""
        assert self.is_established and not self._is_shut, "the handshake comes before, close_notify after it"
        assert len(plaintext) <= OUTBOUND_SIZE_MAX, "more than one write at a time"
        if not plaintext:
            return
        try:
            written = self._tls.write(plaintext)
        except ssl.SSLError as e:
            raise TlsError(f"TLS failed: {_reason(e)}") from e
        assert written == len(plaintext), "a MemoryBIO takes all"

    def take(self, size_max: int = -1) -> bytes:
        """Ciphertext to send, in order, so many bytes at most; empty if there is none. It is the caller's to keep until it is sent."""
        return self._outgoing.read(size_max)

    def shut(self) -> None:
        """Say close_notify: nothing is written after it. Does nothing before the handshake is done."""
        if self._is_shut or not self.is_established:
            return
        self._is_shut = True
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # the peer's close_notify is not waited for, and after an error there is none to say

    @property
    def unsent_size(self) -> int:
        """Bytes of ciphertext that `take` would give."""
        return self._outgoing.pending

    @property
    def unread_size(self) -> int:
        """Bytes that were fed and not read: plaintext of the current record, and ciphertext, which may be a part of a record."""
        return self._tls.pending() + self._incoming.pending

    @property
    def peer_certificate(self) -> bytes | None:
        """The DER of the peer's certificate, which was verified; None if it sent none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def protocol(self) -> str | None:
        """TLSv1.2 or TLSv1.3."""
        return self._tls.version()

    @property
    def cipher_suite(self) -> str | None:
        """OpenSSL's name."""
        cipher = self._tls.cipher()
        return cipher[0] if cipher else None


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the peer ended the connection"
    if error.reason == "HTTP_REQUEST":
        return "the peer speaks HTTP"
    if error.reason in _NOT_TLS:
        return "the peer does not speak TLS"
    return (error.reason or "unknown error").lower().replace("_", " ")
