"""OAuthBearerClient: the connecting side of OAUTHBEARER (RFC 7628): one message with a token.

    SEND_TOKEN -> RECEIVE_ANSWER -> COMPLETE
    RECEIVE_ANSWER -> REFUSED (the server has said why in JSON, and gets the byte 1) -> FAILED

Source: OAuthBearerSaslClient, OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum

from .exchange import SaslError, SaslPropertyError

OAUTHBEARER = "OAUTHBEARER"
AFTER_REFUSAL = b"\x01"
SEPARATOR = "\x01"
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")


class _State(Enum):
    SEND_TOKEN = 1
    RECEIVE_ANSWER = 2
    REFUSED = 3
    COMPLETE = 4
    FAILED = 5


class OAuthBearerClient:
    """SaslClient of one exchange. `find_token` returns the token, or raises SaslError where there is none; it may block.

    `extensions` are sent beside the token, as the options `extension_<name>` of the login module say (`check_extensions`)."""

    def __init__(self, find_token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        self._find_token = find_token
        self._extensions = extensions or {}
        self._state = _State.SEND_TOKEN

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def may_block(self, challenge: bytes) -> bool:
        return self._state is _State.SEND_TOKEN

    def evaluate(self, challenge: bytes) -> bytes | None:
        state, self._state = self._state, _State.FAILED
        if state is _State.SEND_TOKEN:
            if challenge:
                raise SaslError("Expected empty challenge")
            message = self._first_message(self._find_token())
            self._state = _State.RECEIVE_ANSWER
            return message
        if state is _State.RECEIVE_ANSWER:
            self._state = _State.REFUSED if challenge else _State.COMPLETE
            return AFTER_REFUSAL if challenge else None
        raise SaslError("The token was refused" if state is _State.REFUSED else f"Unexpected challenge in OAUTHBEARER state {state.name}")

    def _first_message(self, token: str) -> bytes:
        if not _TOKEN.fullmatch(token):
            raise SaslError("The token has characters that no bearer token may have")
        pairs = {"auth": f"Bearer {token}", **self._extensions}
        return ("n,," + SEPARATOR + "".join(f"{name}={value}{SEPARATOR}" for name, value in pairs.items()) + SEPARATOR).encode()


def check_extensions(extensions: Mapping[str, str], key: str) -> None:
    """Raises SaslPropertyError, which names the property `key`."""
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise SaslPropertyError(
                key, f"the option extension_{name} cannot be sent: a name has letters, and is not auth; no value is empty"
            )
