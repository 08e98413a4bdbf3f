"""The pending requests of the raft core, at most one for each peer, and the peers that may get the next one.

A peer that failed gets no request for `retry_backoff_ms`. A request that is not answered within `request_timeout_ms` is abandoned.
Bootstrap servers, whose node ids are not known yet, have ids below -1.

Source: org.apache.kafka.raft.RequestManager.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from broker.quorum.voters import Address

FIRST_BOOTSTRAP_ID = -2
NEVER_MS = 2**62  # a deadline that never comes


class Node(NamedTuple):
    """A peer and its address."""

    node_id: int
    host: str
    port: int


class _Connection:
    """A peer with a pending request, or in its backoff: then `correlation_id` is None."""

    __slots__ = ("correlation_id", "until_ms")

    def __init__(self, correlation_id: int | None, until_ms: int) -> None:
        self.correlation_id = correlation_id
        self.until_ms = until_ms


class Peers:
    """See the module's docstring. Owner: Raft."""

    def __init__(
        self, bootstrap: Sequence[Address], *, retry_backoff_ms: int, request_timeout_ms: int, random_source: random.Random
    ) -> None:
        self._bootstrap = [Node(FIRST_BOOTSTRAP_ID - index, host, port) for index, (host, port) in enumerate(bootstrap)]
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._random = random_source
        self._connections: dict[int, _Connection] = {}
        self._next_correlation_id = 1

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to `node` now."""
        connection = self._connections.get(node.node_id)
        return connection is None or now_ms >= connection.until_ms

    def is_backing_off(self, node: Node, now_ms: int) -> bool:
        connection = self._connections.get(node.node_id)
        return connection is not None and connection.correlation_id is None and now_ms < connection.until_ms

    def has_timed_out(self, node: Node, now_ms: int) -> bool:
        connection = self._connections.get(node.node_id)
        return connection is not None and connection.correlation_id is not None and now_ms >= connection.until_ms

    def has_request_under_way(self, now_ms: int) -> bool:
        return any(connection.correlation_id is not None and now_ms < connection.until_ms for connection in self._connections.values())

    def wait_until_ms(self, node: Node) -> int:
        """Returns when a request may be sent to `node`."""
        connection = self._connections.get(node.node_id)
        return 0 if connection is None else connection.until_ms

    def earliest_wait_ms(self, now_ms: int) -> int:
        """Returns the end of the first wait for a peer; the end of a backoff from now if there is no wait."""
        waits = [connection.until_ms for connection in self._connections.values() if connection.until_ms > now_ms]
        return min(waits, default=now_ms + self._retry_backoff_ms)

    def find_bootstrap(self, now_ms: int) -> Node | None:
        """Returns a random bootstrap server that may be asked; None while any request is pending."""
        if not self._bootstrap or self.has_request_under_way(now_ms):
            return None
        start = self._random.randrange(len(self._bootstrap))
        rotated = self._bootstrap[start:] + self._bootstrap[:start]
        return next((node for node in rotated if self.is_ready(node, now_ms)), None)

    def note_sent(self, node: Node, now_ms: int) -> int:
        """Record a request to `node`. Returns its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._connections[node.node_id] = _Connection(correlation_id, now_ms + self._request_timeout_ms)
        return correlation_id

    def is_expected(self, node: Node, correlation_id: int) -> bool:
        connection = self._connections.get(node.node_id)
        return connection is not None and connection.correlation_id == correlation_id

    def note_answered(self, node: Node, correlation_id: int, *, is_good: bool, now_ms: int) -> None:
        """Called after the answer was handled, which may have dropped the request already."""
        if not self.is_expected(node, correlation_id):
            return
        if is_good:
            del self._connections[node.node_id]
        else:
            self._connections[node.node_id] = _Connection(None, now_ms + self._retry_backoff_ms)

    def reset(self, node: Node | None = None) -> None:
        """Drop the request and the backoff of `node`, or of all peers."""
        if node is None:
            self._connections.clear()
        else:
            self._connections.pop(node.node_id, None)
