"""A person's login to one cluster, by the mechanism and the trust of the console's own context. The password is in memory alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.settings import Settings

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""That take a user's name and a password."""
USER_MAX, PASSWORD_MAX = 256, 1_024


@dataclass(frozen=True, slots=True)
class Login:
    """`settings` are how the person's own connections are made."""

    user: str
    settings: Settings = field(repr=False)


def takes_passwords(settings: Settings) -> bool:
    """Whether the cluster lets users in by name and password."""
    return settings.mechanism in MECHANISMS


def log_in(settings: Settings, user: str, password: str) -> Login:
    """Raises NotLetInError if a broker refuses it, NotUnderstoodError for what is no name or no password, and NoBrokerError."""
    if not 0 < len(user) <= USER_MAX or not 0 < len(password) <= PASSWORD_MAX:
        raise NotUnderstoodError("a login takes a user's name and a password")
    if any(ord(character) < 32 or ord(character) == 127 for character in user + password):
        # PLAIN divides its fields by NUL; librdkafka's texts end there.
        raise NotUnderstoodError("names and passwords have no control characters")
    own = settings.of_user(user, password)
    with Connection(own) as connection:
        connection.wire()
    return Login(user, own)
