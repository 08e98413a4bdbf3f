"""SilenceReports: lets the active controller fence a broker that answers no request, without waiting for broker.session.timeout.ms.

Every broker reports the brokers that do not answer its requests. If all brokers that ask a certain one report it, and they are at least
two, the controller asks it too. If it neither answers nor sends a heartbeat meanwhile, it is fenced. No counterpart in Kafka.

Source: docs/architecture.md, "When a process is silent".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker.metadata.watched_brokers import WATCHERS_MIN, is_silence_noticed, watchers_of

if TYPE_CHECKING:
    from broker.controller.heartbeats import BrokerHeartbeats
    from broker.loop.clock import Clock
    from broker.metadata.cluster_state import ClusterState
    from broker.metadata.image import BrokerImage

BACKOFF_MS = 30_000
"""For this time after a broker was fenced for its silence, only the end of its session fences it. Otherwise a broker that reaches the
controller, but cannot be reached, would be fenced and unfenced again and again."""

AskOnce = Callable[[tuple[str, int], Callable[[bool], None]], None]
"""Asks the node at that address (host and port), and tells once whether it was silent."""


class SilenceReports:
    """One epoch of this node's leadership. Owner: LocalController, whose `fence` gets the id of a broker that is silent. The brokers are
    asked at `listener_name`; `node_id` is this node, whose own broker is never fenced."""

    def __init__(
        self,
        state: ClusterState,
        heartbeats: BrokerHeartbeats,
        fence: Callable[[int], None],
        ask: AskOnce,
        clock: Clock,
        *,
        node_id: int,
        listener_name: str,
    ) -> None:
        self._state = state
        self._heartbeats = heartbeats
        self._fence = fence
        self._ask = ask
        self._clock = clock
        self._node_id = node_id
        self._listener_name = listener_name
        self._silent_to: dict[int, frozenset[int]] = {}  # by reporter, from its last heartbeat
        self._asked: set[int] = set()  # brokers whose answer the controller waits for
        self._not_before_ms: dict[int, int] = {}
        self._is_over = False

    def note(self, reporter_id: int, silent: Collection[int]) -> None:
        """Record the silent brokers that a broker's heartbeat reports."""
        if not silent and reporter_id not in self._silent_to:
            return
        self._silent_to[reporter_id] = frozenset(silent)
        for node_id in silent:
            self._maybe_ask(node_id)

    def end(self) -> None:
        """Called when this node's leadership ends."""
        self._is_over = True

    def _maybe_ask(self, node_id: int) -> None:
        broker = self._state.brokers.get(node_id)
        if broker is None or node_id in self._asked or not self._is_silent_to_all(broker):
            return
        if self._clock.monotonic_ms() < self._not_before_ms.get(node_id, 0):
            return
        address = broker.endpoints.get(self._listener_name)
        if address is None:
            return
        contact_ms = self._heartbeats.last_contact_ms(node_id)
        self._asked.add(node_id)

        def on_end(is_silent: bool) -> None:
            self._asked.discard(node_id)
            if is_silent and self._heartbeats.last_contact_ms(node_id) == contact_ms:
                self._maybe_fence(node_id, broker.epoch)

        self._ask(address, on_end)

    def _maybe_fence(self, node_id: int, epoch: int) -> None:
        broker = self._state.brokers.get(node_id)
        if self._is_over or broker is None or broker.epoch != epoch or not self._is_silent_to_all(broker):
            return
        self._not_before_ms[node_id] = self._clock.monotonic_ms() + BACKOFF_MS
        self._fence(node_id)

    def _is_silent_to_all(self, broker: BrokerImage) -> bool:
        """Whether every broker that asks this one reports it. False if a node takes part that does not make such reports."""
        node_id = broker.node_id
        if broker.is_fenced or node_id == self._node_id:
            return False
        watchers = watchers_of(node_id, self._state.brokers)
        are_enough = len(watchers) >= WATCHERS_MIN and is_silence_noticed(self._state)
        return are_enough and all(node_id in self._silent_to.get(each, ()) for each in watchers)
