"""SilenceWatch: notices that other nodes do not answer, by sending each of them one request per tick. `ask_once` does the same once.

The request is ApiVersions, which the other node's loop answers without its disk. A node that is silent to one node may answer others; the
owner decides what follows. A pause of this node's own loop makes no other node count as silent. No counterpart in Kafka.

Source: docs/architecture.md, "When a process is silent".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.cluster.peer_connections import PeerConnections
from broker.loop.clock import Clock, Timer
from broker.network.client import SOFTWARE_NAME
from protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from broker.quorum.voters import Address

TICKS = 6
"""In the time of silence: one until the question is asked, four without an answer, one for the controller's own question."""
TICKS_WITHOUT_ANSWER = 4
PAUSE_TICKS = 2
"""A tick that comes later than this many means that this node was paused."""


def tick_ms(silence_ms: int) -> int:
    return max(silence_ms // TICKS, 1)


class _Question:
    """The last request to `address`."""

    __slots__ = ("address", "asked_ms", "is_answered")

    def __init__(self, address: Address, asked_ms: int) -> None:
        self.address = address
        self.asked_ms = asked_ms
        self.is_answered = False

    def record_answer(self, response: Any | None) -> None:
        """Called with the answer, or with None if the connection has ended or could not be opened: that does not count as silence."""
        self.is_answered = True


class SilenceWatch:
    """Owns `connections`. `find_targets` returns the nodes to ask and their addresses. `on_change` is called with the silent nodes each
    time they change."""

    def __init__(
        self,
        connections: PeerConnections,
        clock: Clock,
        find_targets: Callable[[], Mapping[int, Address]],
        on_change: Callable[[frozenset[int]], None],
        *,
        silence_ms: int,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._find_targets = find_targets
        self._on_change = on_change
        self._tick_ms = tick_ms(silence_ms)
        self._questions: dict[int, _Question] = {}
        self._silent: frozenset[int] = frozenset()
        self._ticked_ms = clock.monotonic_ms()
        self._timer: Timer | None = None

    def start(self) -> None:
        self._ticked_ms = self._clock.monotonic_ms()
        self._timer = self._clock.call_later(self._tick_ms, self._tick)

    async def close(self) -> None:
        """Stop asking."""
        if self._timer is not None:
            self._timer.cancel()
        self._questions.clear()
        await self._connections.close()

    def _tick(self) -> None:
        self._timer = self._clock.call_later(self._tick_ms, self._tick)
        now_ms = self._clock.monotonic_ms()
        if self._was_paused(now_ms):
            for question in self._questions.values():
                question.asked_ms = now_ms
        self._ticked_ms = now_ms
        self._ask(self._find_targets(), now_ms)
        silent = frozenset(node_id for node_id, question in self._questions.items() if self._is_silent(question, now_ms))
        if silent != self._silent:
            self._silent = silent
            self._on_change(silent)

    def _was_paused(self, now_ms: int) -> bool:
        return now_ms - self._ticked_ms > PAUSE_TICKS * self._tick_ms

    def _is_silent(self, question: _Question, now_ms: int) -> bool:
        return not question.is_answered and now_ms - question.asked_ms >= TICKS_WITHOUT_ANSWER * self._tick_ms

    def _ask(self, targets: Mapping[int, Address], now_ms: int) -> None:
        for node_id in [each for each, question in self._questions.items() if targets.get(each) != question.address]:
            self._connections.drop(*self._questions.pop(node_id).address)
        for node_id, address in targets.items():
            last = self._questions.get(node_id)
            if last is None or last.is_answered:
                question = self._questions[node_id] = _Question(address, now_ms)
                self._connections.get(*address).send(_question(), question.record_answer)


def _question() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="0")


def ask_once(connections: PeerConnections, clock: Clock, address: Address, wait_ms: int, on_end: Callable[[bool], None]) -> None:
    """Ask the node at `address` on a new connection. `on_end` is called once: with True if it is silent for `wait_ms`, with False if it
    answers, the connection ends or cannot be made, or this node was paused meanwhile."""
    asked_ms = clock.monotonic_ms()
    is_over = False

    def end(*, is_silent: bool) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            timer.cancel()
            connections.drop(*address)
            on_end(is_silent)

    def answered(response: Any | None) -> None:
        end(is_silent=False)

    def waited() -> None:
        end(is_silent=clock.monotonic_ms() - asked_ms <= PAUSE_TICKS * wait_ms)

    connections.drop(*address)
    timer = clock.call_later(wait_ms, waited)
    connections.get(*address).send(_question(), answered)
