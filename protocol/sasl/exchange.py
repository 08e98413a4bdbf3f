"""What the SASL mechanisms share: one exchange of tokens for each connection, its result, and its kinds of failure.

Source: javax.security.sasl.SaslServer and SaslClient, as Kafka uses them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class SaslError(Exception):
    """Authentication failed. The message is for the log only: it may say which users exist."""


class SaslAuthenticationError(SaslError):
    """Authentication failed, and the client may be told the message (Kafka's SaslAuthenticationException)."""


class SaslPropertyError(ValueError):
    """A property of a login that cannot be used. `str()` is the one line a person needs, and begins with the property's name."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key


class Identity(NamedTuple):
    """The result of an exchange. `credential_end_ms` is wall-clock time; None for a credential without an end."""

    name: str
    is_token_authenticated: bool = False
    credential_end_ms: int | None = None


class SaslServer(Protocol):
    """One mechanism's side of the broker. `identity` is None until the exchange is complete."""

    @property
    def identity(self) -> Identity | None: ...

    def evaluate(self, response: bytes) -> bytes:
        """The token for the client that answers its token, possibly empty. Raises SaslError; the exchange is over then."""


class SaslClient(Protocol):
    """One mechanism's side of the node that connects."""

    @property
    def is_complete(self) -> bool: ...

    def may_block(self, challenge: bytes) -> bool:
        """Whether `evaluate` may take milliseconds, or wait for something: then it is not for an event loop."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The token for the server; None if there is none to send. The first call has an empty challenge. Raises SaslError."""
