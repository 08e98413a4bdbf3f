"""BrokerHeartbeats: the sessions of the brokers at the active controller. In memory only: a new controller gives every broker a new
session.

Time that this process lost (a busy loop, a stopped machine) is added to every session, so that no broker is fenced because the controller
itself was paused.

Source: org.apache.kafka.controller.BrokerHeartbeatManager, BrokerHeartbeatTracker.
"""

from __future__ import annotations

from collections.abc import Iterable

CHECKS_PER_SESSION = 8
"""How often in a session's time the controller looks for those that have ended, as in Kafka."""
PAUSE_FACTOR = 2
"""A check that comes later than this many intervals means that the process was paused."""
NO_OFFSET = -1


class _Session:
    __slots__ = ("epoch", "is_disconnected", "is_inherited", "last_contact_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int, last_contact_ms: int, *, is_inherited: bool = False) -> None:
        self.epoch = epoch
        self.last_contact_ms = last_contact_ms
        self.is_inherited = is_inherited
        self.is_disconnected = False
        self.metadata_offset = NO_OFFSET
        self.shutdown_offset: int | None = None


class BrokerHeartbeats:
    """Owner: BrokerControl. Times are monotonic ms."""

    def __init__(self, session_timeout_ms: int, now_ms: int, *, embedded_id: int) -> None:
        """`embedded_id` is the broker in the controller's process."""
        self._embedded_id = embedded_id
        self._timeout_ms = session_timeout_ms
        self.check_interval_ms = max(session_timeout_ms // CHECKS_PER_SESSION, 1)
        self._checked_ms = now_ms
        self._sessions: dict[int, _Session] = {}

    def register(self, node_id: int, epoch: int, now_ms: int) -> None:
        self._sessions[node_id] = _Session(epoch, now_ms)

    def inherit(self, node_id: int, epoch: int, now_ms: int) -> None:
        """Give a session to a broker that a new controller has not heard from yet."""
        self._sessions[node_id] = _Session(epoch, now_ms, is_inherited=True)

    def note_contact(self, node_id: int, epoch: int, metadata_offset: int, now_ms: int) -> None:
        session = self._sessions.get(node_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[node_id] = _Session(epoch, now_ms)
        session.last_contact_ms = now_ms
        session.is_disconnected = session.is_inherited = False
        session.metadata_offset = metadata_offset

    def note_disconnection(self, node_id: int, epoch: int) -> None:
        """The connection of its heartbeats has ended. Until the next contact a new incarnation may take the session's place."""
        session = self._sessions.get(node_id)
        if session is not None and session.epoch == epoch:
            session.is_disconnected = True

    def last_contact_ms(self, node_id: int) -> int | None:
        """Returns when the broker's last heartbeat arrived; None without a session."""
        session = self._sessions.get(node_id)
        return None if session is None else session.last_contact_ms

    def remove(self, node_id: int) -> None:
        self._sessions.pop(node_id, None)

    def has_session(self, node_id: int, epoch: int, now_ms: int) -> bool:
        """Whether that incarnation may still be alive: a new one is refused as long as it is."""
        session = self._sessions.get(node_id)
        if session is None or session.epoch != epoch or session.is_disconnected:
            return False
        return node_id == self._embedded_id or now_ms - session.last_contact_ms < self._timeout_ms

    def is_inherited(self, node_id: int) -> bool:
        """Whether the broker's session is from `inherit`: this controller has not heard from it."""
        session = self._sessions.get(node_id)
        return session is not None and session.is_inherited

    def begin_shutdown(self, node_id: int, offset: int) -> None:
        """Begin the broker's controlled shutdown. The last record that moves its leaderships is at `offset`; the broker may stop once
        every active broker has read that."""
        session = self._sessions.get(node_id)
        if session is not None and session.shutdown_offset is None:
            session.shutdown_offset = offset

    def is_shutting_down(self, node_id: int) -> bool:
        session = self._sessions.get(node_id)
        return session is not None and session.shutdown_offset is not None

    def may_shut_down(self, node_id: int, active: Iterable[int]) -> bool:
        """Whether all `active` brokers have read which brokers took over from broker `node_id`, which is shutting down."""
        shutdown_offset = self._sessions[node_id].shutdown_offset
        assert shutdown_offset is not None
        return all(shutdown_offset <= self._metadata_offset(each) for each in active if each != node_id)

    def _metadata_offset(self, node_id: int) -> int:
        session = self._sessions.get(node_id)
        return NO_OFFSET if session is None else session.metadata_offset

    def find_expired(self, now_ms: int) -> list[int]:
        """Returns the brokers whose sessions have timed out."""
        passed_ms = now_ms - self._checked_ms
        self._checked_ms = now_ms
        if passed_ms > PAUSE_FACTOR * self.check_interval_ms:
            for session in self._sessions.values():
                session.last_contact_ms = min(session.last_contact_ms + passed_ms - self.check_interval_ms, now_ms)
        return [
            node_id
            for node_id, session in self._sessions.items()
            if node_id != self._embedded_id and now_ms - session.last_contact_ms >= self._timeout_ms
        ]
