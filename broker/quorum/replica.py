"""RaftReplica: one replica of the metadata quorum without I/O. Its driver passes in requests, responses and the time, and takes a Ready
out.

It connects the parts of the core, and polls the roles after every event.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from broker.quorum.raft import Outgoing, Raft, RaftConfig, Ready
from broker.quorum.raft_log import ControlRecord, RaftLog
from broker.quorum.raft_roles import RaftRoles
from broker.quorum.raft_state import Vote
from broker.quorum.voter_changes import VoterChange

if TYPE_CHECKING:
    from broker.quorum.exchange import RaftExchange


class RaftReplica:
    """Every method takes the monotonic time in ms. `wake_ms` is the latest time of the next `poll`.

    After any call the driver takes the Ready: it writes the vote, then sends the rest. If `needs_flush`, it fsyncs the log, then calls
    `log_is_durable`. `on_high_watermark` is called when more is committed.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        vote: Vote | None,
        control_records: Iterable[ControlRecord],
        *,
        random_source: random.Random,
        now_ms: int,
    ) -> None:
        self.raft = Raft(config, log, vote, control_records, random_source=random_source, now_ms=now_ms)
        self._roles = RaftRoles(self.raft)
        self.on_high_watermark: Callable[[], None] = lambda: None
        self.wake_ms = now_ms
        self._exchange: RaftExchange | None = None
        self._has_progress = False
        self._told_end_offset = log.end_offset
        """Fetches that wait have been looked at with a log of this length."""
        self.raft.on_high_watermark = self._high_watermark_moved
        self.raft.on_leadership_lost = self._leadership_lost
        self.poll(now_ms)

    # -- events ----------------------------------------------------------------------------------------------------

    def handle_request(self, token: Any, message: Any, version: int, listener_name: str, now_ms: int) -> None:
        """Answer a peer's or a client's request; the answer comes with a Ready, now or later."""
        self._get_exchange().handle_request(token, message, version, listener_name, now_ms)
        self.poll(now_ms)

    def handle_response(self, outgoing: Outgoing, response: Any | None, now_ms: int) -> None:
        """Handle the answer to a request of ours; None if there will be none."""
        self._get_exchange().handle_response(outgoing, response, now_ms)
        self.poll(now_ms)

    def log_is_durable(self, now_ms: int) -> None:
        """Called after an fsync of the log up to its `durable_end_offset`."""
        self.raft.log_is_durable(now_ms)
        self.poll(now_ms)

    def propose(self, epoch: int, records: Sequence[Any], *, now_ms: int) -> int:
        """See `Raft.propose`. Parked fetches of followers get the records at once."""
        offset = self.raft.propose(epoch, records, now_ms=now_ms)
        self._has_progress = True
        self.poll(now_ms)
        return offset

    def upgrade_kraft_version(self, level: int, *, is_validated_only: bool, now_ms: int) -> int | None:
        offset = self._get_exchange().voters.upgrade_kraft_version(level, is_validated_only=is_validated_only, now_ms=now_ms)
        self.poll(now_ms)
        return offset

    def resign(self, epoch: int, now_ms: int) -> None:
        self.raft.resign(epoch)
        self.poll(now_ms)

    def stop(self, now_ms: int) -> None:
        self.raft.stop()
        self.poll(now_ms)

    def leader_has_failed(self, node_id: int, now_ms: int) -> None:
        self.raft.leader_has_failed(node_id, now_ms)
        self.poll(now_ms)

    # -- work for the driver ----------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """Poll the roles until nothing is due."""
        if self._exchange is not None:
            self._exchange.voters.expire(now_ms)
        wake_ms = self._roles.poll(now_ms)
        while self._has_progress or self.raft.log.end_offset != self._told_end_offset:
            self._has_progress = False
            self._told_end_offset = self.raft.log.end_offset
            if self._exchange is not None:
                self._exchange.requests.progress(now_ms)  # an answered fetch may move the high watermark, for which others wait
            wake_ms = min(wake_ms, self._roles.poll(now_ms))
        self.wake_ms = wake_ms if self._exchange is None else min(wake_ms, self._exchange.requests.expire(now_ms))

    def take_ready(self) -> Ready:
        return self.raft.take_ready()

    @property
    def needs_flush(self) -> bool:
        return self.raft.needs_flush

    def _get_exchange(self) -> RaftExchange:
        if self._exchange is None:
            from broker.quorum.exchange import RaftExchange

            self._exchange = RaftExchange(self.raft)
        return self._exchange

    # -- inside ----------------------------------------------------------------------------------------------------

    def _high_watermark_moved(self) -> None:
        self._has_progress = True
        if self._exchange is not None:
            self._exchange.voters.high_watermark_moved()
        self.on_high_watermark()

    def _leadership_lost(self, change: VoterChange | None) -> None:
        if self._exchange is not None:
            self._exchange.voters.leadership_lost(change)
            self._exchange.requests.leadership_ends()
