"""OAUTHBEARER (RFC 7628): the client's one token is a JSON Web Token.

    INITIAL -> COMPLETE
    INITIAL -> REFUSED (the client is told `{"status":"invalid_token"}`, and answers with the byte 1) -> FAILED

Stricter than Kafka: after a refusal the client has no second try in the same exchange.

Source: OAuthBearerSaslServer, OAuthBearerClientInitialResponse, OAuthBearerValidatorCallbackHandler.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from protocol.sasl.exchange import Identity, SaslAuthenticationError, SaslError

OAUTHBEARER = "OAUTHBEARER"
INVALID_TOKEN = '{"status":"invalid_token"}'
AFTER_REFUSAL = b"\x01"

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01)*+"  # possessive: what does not match costs one walk
_INITIAL = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class TokenError(Exception):
    """A token that is not taken. The message is for the log, and has no part of the token."""


class ValidToken(NamedTuple):
    """Who the token's bearer is, and when the token ends by the wall clock."""

    principal_name: str
    end_ms: int


class InitialResponse(NamedTuple):
    """The client's first message. Extensions are checked and otherwise ignored, as Kafka's validator takes all of them."""

    token: str
    authorization_id: str


class _State(Enum):
    INITIAL = 1
    REFUSED = 2
    COMPLETE = 3
    FAILED = 4


class OAuthBearerServer:
    """SaslServer of OAUTHBEARER. `validate` raises TokenError; its reasons go to `on_refused`, the client is not told them."""

    def __init__(self, validate: Callable[[str], ValidToken], on_refused: Callable[[str], None]) -> None:
        self._validate = validate
        self._on_refused = on_refused
        self._state = _State.INITIAL
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity | None:
        return self._identity

    def evaluate(self, response: bytes) -> bytes:
        """Raises SaslAuthenticationError, which Kafka's clients are told too, and SaslError."""
        state, self._state = self._state, _State.FAILED
        if state is _State.REFUSED and response == AFTER_REFUSAL:
            raise SaslAuthenticationError(INVALID_TOKEN)
        if state is not _State.INITIAL:
            raise SaslError(f"Unexpected token in OAUTHBEARER state {state.name}")
        initial = parse_initial_response(response)
        try:
            token = self._validate(initial.token)
        except TokenError as e:
            self._on_refused(str(e))
            self._state = _State.REFUSED
            return INVALID_TOKEN.encode()
        if initial.authorization_id and initial.authorization_id != token.principal_name:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from the token's principal name"
            )
        self._identity = Identity(token.principal_name, credential_end_ms=token.end_ms)
        self._state = _State.COMPLETE
        return b""


def parse_initial_response(message: bytes) -> InitialResponse:
    """Raises SaslError. Of two pairs of one name the last counts, as in Kafka."""
    try:
        found = _INITIAL.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = pairs.get("auth")
    if auth is None:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    bearer = _AUTH.fullmatch(auth)
    if bearer is None:
        raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if bearer["scheme"].lower() != "bearer":
        raise SaslError("Invalid scheme in OAUTHBEARER client first message")
    return InitialResponse(bearer["token"], found["authzid"] or "")
