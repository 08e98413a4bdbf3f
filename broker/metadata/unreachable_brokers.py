"""UnreachableBrokers: brokers that may be gone and that Metadata answers treat specially, so that clients soon find the new leaders.

Case A: its connection to this broker has just ended, or its address refuses connections. A client that loses its leader asks for Metadata
at once, before the controller has fenced that leader. If the answer names that leader again, librdkafka waits until its next refresh of all
topics, up to a second. After LEADER_NOT_AVAILABLE it asks again within 100 ms, as the Java client does in any case.
Case B: it was just fenced without a controlled shutdown. librdkafka removes a broker that is not listed any more, and then ignores the new
leaders of its partitions in the same answer for another second. So the broker is listed a little longer, but leads nothing.

Kafka does neither: it lists a broker that is gone until broker.session.timeout.ms are over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.loop.clock import Clock
from broker.loop.deferred import Deferred
from broker.metadata.image import BrokerImage, MetadataDelta

UNREACHABLE_MS = 500
"""Longer than it takes until a broker that is gone is fenced."""
LISTED_MS = 2_000
"""After its fencing; librdkafka looks at its topics each second."""


class UnreachableBrokers:
    """`add` reports case A; case B follows from the metadata, which holds `brokers`.

    `probe` checks whether these brokers' addresses refuse connections now. It returns a Deferred of its end; None when there is nothing
    to check."""

    def __init__(self, clock: Clock, brokers: Mapping[int, BrokerImage]) -> None:
        self.probe: Callable[[Iterable[int]], Deferred | None] = lambda node_ids: None
        self._clock = clock
        self._brokers = brokers
        self._unreachable_until_ms: dict[int, int] = {}
        self._listed_until_ms: dict[int, int] = {}
        self._active: set[int] = set()

    def add(self, node_id: int) -> None:
        """Add a broker whose connection to this one has just ended, or was refused."""
        self._unreachable_until_ms[node_id] = self._clock.monotonic_ms() + UNREACHABLE_MS

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        for node_id in delta.changed_brokers:
            broker = self._brokers.get(node_id)
            self._listed_until_ms.pop(node_id, None)
            was_active = node_id in self._active
            self._active.discard(node_id)
            if broker is not None and broker.is_active:
                self._active.add(node_id)
            elif was_active and broker is not None and not broker.is_in_controlled_shutdown:
                self._listed_until_ms[node_id] = self._clock.monotonic_ms() + LISTED_MS

    def unreachable(self) -> tuple[int, ...]:
        """The brokers of case A."""
        return self._current(self._unreachable_until_ms)

    def listed(self) -> tuple[int, ...]:
        """The brokers of case B, which are registered and fenced."""
        return self._current(self._listed_until_ms)

    def _current(self, until_ms: dict[int, int]) -> tuple[int, ...]:
        if until_ms:
            now_ms = self._clock.monotonic_ms()
            for node_id in [node_id for node_id, end_ms in until_ms.items() if now_ms >= end_ms]:
                del until_ms[node_id]
        return tuple(until_ms)
