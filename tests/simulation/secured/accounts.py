"""Who the clients of a secured simulated world are, what they log in with, and how they do it.

An account keeps the secrets that it was given, old ones too: a client takes mostly the newest, which the brokers may not know yet, and
sometimes one that was withdrawn, which must not let it in.
"""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.sasl import scram
from protocol.sasl.exchange import SaslClient
from protocol.sasl.plain import PLAIN, PlainClient
from protocol.sasl.scram import ITERATIONS_MIN, ScramMechanism
from protocol.sasl.scram_client import ScramClient
from tests.simulation.clients import Address
from tests.simulation.connection import ClientConnection, LostError
from tests.simulation.network import SimulatedNetwork
from tests.simulation.shapes import CONTROLLER_PORT

if TYPE_CHECKING:
    from tests.simulation.secured.judge import AccessJudge, Arrival

SCRAM = ScramMechanism.SCRAM_SHA_256
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
NEWEST_SHARE = 0.8  # of the logins are by the newest secret
SECRETS_TRIED = 3  # of the newest ones, by the other logins
REFRESH_SHARE = 0.85  # of a session's time has gone when a client logs in again (KIP-368)
REFRESHED_SHARE = 0.6  # of the connections are logged in again; the others wait for the end of their session
DAWDLING_SHARE, DAWDLING_MAX_S = 0.2, 0.4  # of the messages of a login leave late
NONCE_SIZE = 18


@dataclass(frozen=True)
class PlainPassword:
    """It is in the brokers' settings, which do not change. Not `is_right`: it is of nobody."""

    user: str
    password: str
    is_right: bool = True
    mechanism = PLAIN

    def client(self, draw: random.Random) -> SaslClient:
        return PlainClient(self.user, self.password)


@dataclass(frozen=True)
class ScramPassword:
    """`salt` is drawn by whoever sets it, so that it is known which password a credential of the metadata belongs to."""

    user: str
    password: str
    salt: bytes
    mechanism = SCRAM.mechanism_name

    @property
    def salted(self) -> bytes:
        return scram.salted_password(SCRAM, self.password, self.salt, ITERATIONS_MIN)

    @property
    def stored_key(self) -> bytes:
        return scram.credential_of(SCRAM, self.salted, self.salt, ITERATIONS_MIN).stored_key

    def client(self, draw: random.Random) -> SaslClient:
        return ScramClient(SCRAM, self.user, self.password, draw.randbytes(NONCE_SIZE).hex())


@dataclass(frozen=True)
class Token:
    """A delegation token of `user` (KIP-48)."""

    user: str
    token_id: str
    hmac: bytes
    mechanism = SCRAM.mechanism_name

    def client(self, draw: random.Random) -> SaslClient:
        password = base64.b64encode(self.hmac).decode()
        return ScramClient(SCRAM, self.token_id, password, draw.randbytes(NONCE_SIZE).hex(), is_token=True)


Secret = PlainPassword | ScramPassword | Token


@dataclass
class Account:
    """One user of the cluster. `secrets`: the newest is the last."""

    user: str
    is_super: bool = False
    secrets: list[Secret] = field(default_factory=list)

    @property
    def principal(self) -> str:
        return f"User:{self.user}"

    def pick(self, draw: random.Random) -> Secret:
        """What a client logs in with. Raises LostError while there is nothing."""
        if not self.secrets:
            raise LostError(f"{self.user} has no secret yet")
        return self.secrets[-1] if draw.random() < NEWEST_SHARE else draw.choice(self.secrets[-SECRETS_TRIED:])


class Door:
    """How one client opens its connections: `open` is its Client.open_connection."""

    def __init__(self, account: Account, judge: AccessJudge, draw: random.Random) -> None:
        self._account = account
        self._judge = judge
        self._draw = draw

    async def open(self, network: SimulatedNetwork, from_host: str, host: str, port: int) -> SecuredConnection:
        def make() -> SecuredConnection:
            return SecuredConnection(network.loop, from_host, (host, port), self._account, self._judge, self._draw)

        try:
            _, connection = await network.connect(from_host, host, port, make)
        except OSError as error:
            raise LostError(str(error)) from error
        secured: SecuredConnection = connection
        await secured.log_in(self._account.pick(self._draw))
        return secured


class SecuredConnection(ClientConnection):
    """A connection that is logged in before it is used, and, mostly, again before its session ends. The judge sees all answers.

    `from_host` is the client's, `to` the address of the broker."""

    def __init__(self, loop: Any, from_host: str, to: Address, account: Account, judge: AccessJudge, draw: random.Random) -> None:
        super().__init__(loop)
        self.from_host = from_host
        self.node = to[0]
        self.is_to_controller = to[1] == CONTROLLER_PORT
        self.account = account
        self.port = 0
        self.session_end_s: float | None = None
        """The latest moment at which the session can end, in true time; None for one without an end. The judge sets it."""
        self.last_arrival: Arrival | None = None
        """When the last request that was answered had reached the broker."""
        self._judge = judge
        self._draw = draw
        self._refresh_s: float | None = None
        self._is_refreshed = draw.random() < REFRESHED_SHARE

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.port = transport.local[1]
        self._judge.connected(self)

    def send(self, message: Any, version: int) -> Any:
        correlation_id = self._next_correlation_id
        answer = super().send(message, version)
        answer.add_done_callback(lambda done: self._judge.answered(self, correlation_id, message, version, done))
        return answer

    async def log_in(self, secret: Secret) -> None:
        """Raises LostError; a refusal is one too."""
        try:
            await self._log_in(secret)
        except LostError:
            self.close()
            raise

    async def refresh(self) -> None:
        if self._refresh_s is None or self._loop.time() < self._refresh_s or self._unanswered or not self._is_refreshed:
            return
        self._refresh_s = None
        await self.log_in(self.account.pick(self._draw))

    async def _log_in(self, secret: Secret) -> None:
        client = secret.client(self._draw)
        shaken = await self.send(SaslHandshakeRequest(mechanism=secret.mechanism), HANDSHAKE_VERSION)
        if shaken.error_code:
            raise LostError(f"handshake refused, error {shaken.error_code}")
        challenge, lifetime_ms, arrivals = b"", 0, []
        while (token := client.evaluate(challenge)) is not None:  # a SaslError is an error of the broker, and ends the run
            if self._draw.random() < DAWDLING_SHARE:
                await asyncio.sleep(self._draw.uniform(0.0, DAWDLING_MAX_S))
            response = await self.send(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
            assert self.last_arrival is not None, "an answer comes after its request"
            arrivals.append(self.last_arrival)
            if response.error_code:
                self._judge.login_refused(self, secret, arrivals)
                raise LostError(f"login refused: {response.error_message}")
            challenge, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
        self._judge.logged_in(self, secret, arrivals, lifetime_ms)
        if lifetime_ms:
            self._refresh_s = self._loop.time() + lifetime_ms / 1000 * REFRESH_SHARE
