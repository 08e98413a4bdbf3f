"""The administrator of a secured broker or cluster: its login by TLS and PLAIN, and the users that it makes.

Python's own library is enough. The broker's process makes the keys and tells them in a file of its directory, for this user alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Sequence

from ._errors import BrokerError
from ._wire import Login, ask, exchange, string

SECRETS_FILE, AUTHORITY_FILE = "barnabas-secure.json", "barnabas-ca.pem"
SASL_HANDSHAKE, HANDSHAKE_VERSION = 17, 1
SASL_AUTHENTICATE, AUTHENTICATE_VERSION = 36, 0
DESCRIBE_USER_SCRAM_CREDENTIALS, DESCRIBE_VERSION = 50, 0
ALTER_USER_SCRAM_CREDENTIALS, ALTER_VERSION = 51, 0
RESOURCE_NOT_FOUND = 91
MECHANISM, MECHANISM_CODE, HASH = "SCRAM-SHA-256", 1, "sha256"
ITERATIONS = 4_096
SALT_BYTES = 18
PASSWORD_BYTES = 24
NAME_BYTES_MAX = 100
TIMEOUT_S = 30.0
POLL_S = 0.02


class Administrator:
    """Of the broker whose directory is `data_dir`, or of its cluster. The users' passwords are known here, for as long as that is."""

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

    def config(self, addresses: Sequence[tuple[str, int]], user: str | None) -> dict[str, str]:
        """How librdkafka logs in as `user`, who is made at the first call; None for the administrator.

        By the first of the brokers' `addresses` that answers; all that answer know the user when this returns. Raises BrokerError, OSError.
        """
        if user is None or user == self.name:
            return self._config("PLAIN", self.name, self._password)
        if user not in self._passwords:
            password = secrets.token_urlsafe(PASSWORD_BYTES)
            self._make_user(addresses, user, password)
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

    def _make_user(self, addresses: Sequence[tuple[str, int]], user: str, password: str) -> None:
        if not 1 <= len(user.encode()) <= NAME_BYTES_MAX:
            raise BrokerError(f"a user's name has 1 to {NAME_BYTES_MAX} bytes, not {user!r}")
        salt = os.urandom(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASH, password.encode(), salt, ITERATIONS)
        for number, address in enumerate(addresses):
            try:
                self._set_password(address, user, salt, salted)
                break
            except OSError:  # it was just killed, or is stopped by a signal: ask the next
                if number == len(addresses) - 1:
                    raise
        deadline_s = time.monotonic() + TIMEOUT_S
        for address in addresses:
            with contextlib.suppress(OSError):
                while not self._knows(address, user) and time.monotonic() < deadline_s:
                    time.sleep(POLL_S)

    def _set_password(self, address: tuple[str, int], user: str, salt: bytes, salted: bytes) -> None:
        """AlterUserScramCredentials version 0, the only one, whose encoding is flexible (KIP-554)."""
        credential = _compact(user.encode()) + struct.pack(">bi", MECHANISM_CODE, ITERATIONS) + _compact(salt) + _compact(salted) + b"\0"
        body = b"\0" + b"\1" + b"\2" + credential + b"\0"  # the header's tags, no deletions, one upsertion, tags
        answer = ask(address, ALTER_USER_SCRAM_CREDENTIALS, ALTER_VERSION, body, TIMEOUT_S, self.login)
        # The header's tags, throttle time, one result: the user's name, an error code.
        (error,) = struct.unpack_from(">h", answer, 1 + 4 + 1 + 1 + len(user.encode()))
        if error:
            raise BrokerError(f"the broker refuses the user {user}, error {error}")

    def _knows(self, address: tuple[str, int], user: str) -> bool:
        """Whether that broker has applied the user's credential: DescribeUserScramCredentials version 0, the only one."""
        body = b"\0" + b"\2" + _compact(user.encode()) + b"\0" + b"\0"  # the header's tags, one user, its tags, tags
        answer = ask(address, DESCRIBE_USER_SCRAM_CREDENTIALS, DESCRIBE_VERSION, body, TIMEOUT_S, self.login)
        # The header's tags, throttle time, an error code, its message (null), one result: the user's name, an error code.
        (refusal,) = struct.unpack_from(">h", answer, 1 + 4)
        message_bytes = max(answer[7] - 1, 0)
        (found,) = struct.unpack_from(">h", answer, 8 + message_bytes + 1 + 1 + len(user.encode())) if not refusal else (0,)
        error = int(refusal or found)
        if error not in (0, RESOURCE_NOT_FOUND):
            raise BrokerError(f"the broker does not tell of the user {user}, error {error}")
        return error == 0


def _compact(data: bytes) -> bytes:
    """Bytes or a string shorter than 127 bytes."""
    return bytes([len(data) + 1]) + data
