"""AccessJudge: no request that reached a broker after it had applied a withdrawal is served by what was withdrawn.

- A withdrawal is a committed record of the metadata: an ACL is removed or one that denies is added, a SCRAM credential is removed or its
  password changed, a delegation token is removed or is to end earlier. The end of a session is one too (connections.max.reauth.ms, the
  token's end, KIP-368).
- A broker has *applied* it when its own image has the record: its MetadataPublisher is asked, not the administrator's answer. What it had
  applied before a restart counts afterwards: no listener of clients is open before the log is read up to the high watermark.
- A request has *reached* the broker when its last byte was handed to the connection's pipeline. So one that waits behind another one has
  reached it, and so has one that is parked: whatever allows it at some offset between there and the answer may be what it was let in with.
- An answer *serves* where it has no error. The right that it needed must be allowed at some offset of the metadata that the broker had
  applied between the request's coming and the answer's. What the active controller decides (uses.py) may be allowed at any offset from
  what the asked broker had applied to what is committed when the answer comes.
- A connection keeps the principal that it has logged in as until its session ends, also when its credential is removed, as in Kafka. After
  the session's end nothing but a login is answered. A login needs the secret at its last message; Kafka looks it up at the first one only.

And the other way round: what is allowed at every offset between is not refused, nor is a secret that is known at each of them, and
nothing is ever refused to a super user. Which rules decide about an offset is not asked here: tests/broker/security compares them with
Kafka's class.

Watched from inside, as tests/simulation/cluster_watch.py does; what was served is what the client got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple
from unittest.mock import patch

from broker.metadata.publisher import MetadataPublisher
from broker.network.connection import Connection
from broker.network.request_pipeline import RequestPipeline
from broker.security.authorizer.addresses import java_address_of
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop, current_life
from tests.simulation.network import numeric
from tests.simulation.node import NodeClock
from tests.simulation.secured.accounts import ScramPassword, Secret, SecuredConnection, Token
from tests.simulation.secured.committed import CommittedSecurity, SecurityState
from tests.simulation.secured.uses import Right, Use, is_forwarded, uses_of

CORRELATION_ID = slice(4, 8)  # of a request's frame
ROUNDING_MS = 2  # of a session's end
LOGIN_APIS = frozenset({"SaslHandshake", "SaslAuthenticate"})


class Arrival(NamedTuple):
    """When a request had reached its broker. `applied` is the end of the metadata log that the broker had applied, in its life or before;
    `slowest` the least that any node had. `wall_ms` is the broker's wall clock."""

    time_s: float
    wall_ms: int
    applied: int
    slowest: int
    publisher: MetadataPublisher


class AccessJudge:
    """Owner: the world. `clocks` are the nodes' by host, `max_reauth_ms` is connections.max.reauth.ms."""

    def __init__(self, loop: SimulatedLoop, history: History, committed: CommittedSecurity, max_reauth_ms: int) -> None:
        self.clocks: dict[str, NodeClock] = {}
        self._loop = loop
        self._history = history
        self._committed = committed
        self._max_reauth_ms = max_reauth_ms
        self._publishers: dict[str, MetadataPublisher] = {}
        self._applied: dict[str, int] = {}
        self._nodes: dict[int, str] = {}  # by the client's port, which no other connection has
        self._ports: dict[RequestPipeline, int] = {}
        self._arrivals: dict[tuple[int, int], Arrival] = {}  # by the client's port and the correlation id

    # -- what brokers do -----------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, told, is_before in (
                (MetadataPublisher, "__init__", self._publisher_made, False),
                (MetadataPublisher, "handle_commit", self._committed_records, False),
                (MetadataPublisher, "handle_load_snapshot", self._has_applied, False),
                (Connection, "connection_made", self._connection_made, False),
                (RequestPipeline, "offer", self._offered, True),
            ):
                stack.enter_context(patch.object(owner, name, _telling(getattr(owner, name), told, is_before=is_before)))
            yield

    def _publisher_made(self, publisher: MetadataPublisher, *_: Any) -> None:
        life = current_life()
        assert life is not None, "only brokers have one"
        self._publishers[life.name] = publisher

    def _committed_records(self, publisher: MetadataPublisher, offset: int, epoch: int, records: Any) -> None:
        if not self._committed.applied(offset + 1, epoch, records):
            self._history.find("metadata-rewritten", (offset, epoch))
        self._has_applied(publisher)

    def _has_applied(self, publisher: MetadataPublisher, *_: Any) -> None:
        life = current_life()
        assert life is not None
        self._applied[life.name] = max(self._applied.get(life.name, 0), publisher.heard.offset)

    def _connection_made(self, connection: Connection, transport: Any) -> None:
        port = transport.get_extra_info("peername")[1]
        if port in self._nodes:
            self._ports[connection._pipeline] = port

    def _offered(self, pipeline: RequestPipeline, frame: memoryview) -> None:
        port = self._ports.get(pipeline)
        if port is None:
            return  # of another node
        node = self._nodes[port]
        self._arrivals[port, int.from_bytes(frame[CORRELATION_ID])] = Arrival(
            self._loop.time(), self.clocks[node].now_ms(), self._applied.get(node, 0), min(self._applied.values(), default=0),
            self._publishers[node],
        )  # fmt: skip

    # -- what clients see ----------------------------------------------------------------------------------------------

    def connected(self, connection: SecuredConnection) -> None:
        self._nodes[connection.port] = connection.node

    def answered(self, connection: SecuredConnection, correlation_id: int, request: Any, version: int, answer: asyncio.Future[Any]) -> None:
        """A request of the client has come to its end, with an answer or without."""
        arrival = self._arrivals.pop((connection.port, correlation_id), None)
        if answer.cancelled() or answer.exception() is not None:
            return
        assert arrival is not None, "answered before it came"
        connection.last_arrival = arrival
        api = type(request).__name__.removesuffix("Request")
        if api in LOGIN_APIS:
            return
        end_s = connection.session_end_s
        if end_s is not None and arrival.time_s > end_s:
            self._find("served-after-the-session", connection, (api, version, round(arrival.time_s - end_s, 6)))
        for use in uses_of(api, request, answer.result(), is_of_controller=connection.is_to_controller):
            self._check(connection, api, use, arrival)

    def logged_in(self, connection: SecuredConnection, secret: Secret, arrivals: list[Arrival], lifetime_ms: int) -> None:
        """`lifetime_ms` is what the client was told of its session; 0 if it has no end."""
        states = list(self._applied_between(arrivals[-1]))
        if not any(_knows(state, secret) for state in states):
            self._find("withdrawn-secret-accepted", connection, (secret, arrivals[-1].applied))
        limits_ms = [self._max_reauth_ms] if self._max_reauth_ms else []
        if isinstance(secret, Token):
            ends_ms = [_end_ms(state, secret) for state in states]
            wall_ms = min(arrivals[-1].wall_ms, self.clocks[connection.node].now_ms())
            limits_ms.append(max(0, max(ends_ms) - wall_ms))
        limit_ms = min(limits_ms) if limits_ms else None
        if lifetime_ms > (limit_ms or 0):
            self._find("session-too-long", connection, (secret, lifetime_ms, limit_ms))
        connection.session_end_s = None if limit_ms is None else self._loop.time() + (limit_ms + ROUNDING_MS) / 1000
        self._loop.trace.cover(f"login by {type(secret).__name__}")

    def login_refused(self, connection: SecuredConnection, secret: Secret, arrivals: list[Arrival]) -> None:
        if all(_knows(state, secret) for state in self._applied_between(arrivals[0])):
            self._find("known-secret-refused", connection, (secret, arrivals[0].applied))
        self._loop.trace.cover("login refused")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check(self, connection: SecuredConnection, api: str, use: Use, arrival: Arrival) -> None:
        if connection.account.is_super:
            if not use.is_served:
                self._find("super-user-refused", connection, (api, use))
            return
        host = java_address_of(numeric(connection.from_host))
        if is_forwarded(api) and not connection.is_to_controller:
            first = arrival.applied if use.is_served else arrival.slowest
            states = list(self._committed.between(first, self._committed.end_offset))
        else:
            states = list(self._applied_between(arrival))
        decisions = [any(_allows(state, connection.account.principal, host, right) for right in use.rights) for state in states]
        if use.is_served and not any(decisions):
            self._find("served-though-withdrawn", connection, (api, use.rights, arrival.applied, round(arrival.time_s, 6)))
        elif not use.is_served and all(decisions):
            self._find("refused-though-allowed", connection, (api, use.rights, arrival.applied, round(arrival.time_s, 6)))
        if not use.is_served:
            self._loop.trace.cover("refused for want of a right")
        elif len(states) > 1 and not all(decisions):
            self._loop.trace.cover("right withdrawn on the way")

    def _applied_between(self, arrival: Arrival) -> Iterator[SecurityState]:
        """What the broker had applied from the request's coming until now."""
        return self._committed.between(arrival.applied, arrival.publisher.heard.offset)

    def _find(self, anomaly: str, connection: SecuredConnection, evidence: Any) -> None:
        self._history.find(anomaly, (round(self._loop.time(), 6), connection.from_host, connection.account.principal, evidence))
        self._loop.note("judge", f"{anomaly} {connection.from_host} {evidence}")


def _allows(state: SecurityState, principal: str, host: str, right: Right) -> bool:
    return state.allows((principal, host, right.operation, right.resource_type, right.name))


def _knows(state: SecurityState, secret: Secret) -> bool:
    """Whether who has the secret may log in. A token whose time is over may, to a session that has ended, until it is removed."""
    if isinstance(secret, ScramPassword):
        return state.stored_keys.get(secret.user) == secret.stored_key
    return secret.token_id in state.tokens if isinstance(secret, Token) else secret.is_right


def _end_ms(state: SecurityState, token: Token) -> int:
    """By the wall clock."""
    found = state.tokens.get(token.token_id)
    return 0 if found is None else min(found.max_timestamp, found.expiration_timestamp)


def _telling(method: Callable[..., Any], told: Callable[..., None], *, is_before: bool) -> Callable[..., Any]:
    @wraps(method)
    def call_and_tell(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_before:
            told(self, *arguments, **named)
        outcome = method(self, *arguments, **named)
        if not is_before:
            told(self, *arguments, **named)
        return outcome

    return call_and_tell
