"""A secured broker's administrator: its login by TLS and PLAIN, and the users that it makes, with Python's own library alone.

The broker's process makes the keys and tells them in a file of its directory, for this user alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import ssl
import struct

from ._errors import BrokerError
from ._wire import Login, ask, exchange, string

SECRETS_FILE, AUTHORITY_FILE = "barnabas-secure.json", "barnabas-ca.pem"
SASL_HANDSHAKE, HANDSHAKE_VERSION = 17, 1
SASL_AUTHENTICATE, AUTHENTICATE_VERSION = 36, 0
ALTER_USER_SCRAM_CREDENTIALS, ALTER_VERSION = 51, 0
MECHANISM, MECHANISM_CODE, HASH = "SCRAM-SHA-256", 1, "sha256"
ITERATIONS = 4_096
SALT_BYTES = 18
PASSWORD_BYTES = 24
NAME_BYTES_MAX = 100
TIMEOUT_S = 30.0


class Administrator:
    """Of the broker whose directory is `data_dir`. The users' passwords are known here, for as long as the broker's directory is."""

    def __init__(self, data_dir: str) -> None:
        self.authority_file = os.path.join(data_dir, AUTHORITY_FILE)
        with open(os.path.join(data_dir, SECRETS_FILE), encoding="utf-8") as file:
            found = json.load(file)
        self.name: str = found["user"]
        self._password: str = found["password"]
        self._context = ssl.create_default_context(cadata=found["authority"])
        self._passwords: dict[str, str] = {}

    @property
    def login(self) -> Login:
        return self._log_in

    def config(self, address: tuple[str, int], user: str | None) -> dict[str, str]:
        """How librdkafka logs in as `user`, who is made at the first call; None for the administrator. Raises BrokerError, OSError."""
        if user is None or user == self.name:
            return self._config("PLAIN", self.name, self._password)
        if user not in self._passwords:
            password = secrets.token_urlsafe(PASSWORD_BYTES)
            self._make_user(address, user, password)
            self._passwords[user] = password
        return self._config(MECHANISM, user, self._passwords[user])

    def _config(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority_file,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def _log_in(self, plain: socket.socket, host: str) -> socket.socket:
        connection = self._context.wrap_socket(plain, server_hostname=host)
        answer = exchange(connection, SASL_HANDSHAKE, HANDSHAKE_VERSION, string("PLAIN"))
        if struct.unpack_from(">h", answer) == (0,):
            token = f"\0{self.name}\0{self._password}".encode()
            answer = exchange(connection, SASL_AUTHENTICATE, AUTHENTICATE_VERSION, struct.pack(">i", len(token)) + token)
        (error,) = struct.unpack_from(">h", answer)
        if error:
            raise BrokerError(f"the broker refuses the administrator's login, error {error}")
        return connection

    def _make_user(self, address: tuple[str, int], user: str, password: str) -> None:
        """AlterUserScramCredentials version 0, the only one, whose encoding is flexible (KIP-554)."""
        if not 1 <= len(user.encode()) <= NAME_BYTES_MAX:
            raise BrokerError(f"a user's name has 1 to {NAME_BYTES_MAX} bytes, not {user!r}")
        salt = os.urandom(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASH, password.encode(), salt, ITERATIONS)
        credential = _compact(user.encode()) + struct.pack(">bi", MECHANISM_CODE, ITERATIONS) + _compact(salt) + _compact(salted) + b"\0"
        body = b"\0" + b"\1" + b"\2" + credential + b"\0"  # the header's tags, no deletions, one upsertion, tags
        answer = ask(address, ALTER_USER_SCRAM_CREDENTIALS, ALTER_VERSION, body, TIMEOUT_S, self.login)
        # The header's tags, throttle time, one result: the user's name, an error code.
        (error,) = struct.unpack_from(">h", answer, 1 + 4 + 1 + 1 + len(user.encode()))
        if error:
            raise BrokerError(f"the broker refuses the user {user}, error {error}")


def _compact(data: bytes) -> bytes:
    """Bytes or a string shorter than 127 bytes."""
    return bytes([len(data) + 1]) + data
