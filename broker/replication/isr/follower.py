"""A leader's state of one follower. Owned by its Partition; changed when the follower's fetch arrives and on leader change.

Source: org.apache.kafka.server.replica.Replica and ReplicaState. Times are monotonic milliseconds.
"""

from __future__ import annotations

import math

UNKNOWN_OFFSET = -1
NEVER_MS = -math.inf  # not 0, as in Kafka: the monotonic clock may start there
NO_BROKER_EPOCH = -1  # followers before Fetch v15 send none; it matches any


class Follower:
    """A remote replica of a partition led here."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS
        self.broker_epoch: int | None = None  # until it fetches

    def update(self, *, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        """Record a fetch that arrived at `now_ms`, when the leader's log ended at `leader_end_offset`.

        A fetch from offset N proves that everything before N is on the follower's log. If N reaches the leader's end at the follower's
        previous fetch, the follower was caught up at that time. So a follower that is always a little behind stays in the ISR."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def reset(self, *, is_new_leader: bool, is_in_isr: bool, leader_end_offset: int, now_ms: int) -> None:
        """Start a leader epoch. A member of the ISR gets a full lag period to fetch for the first time. All other state is dropped if
        this broker did not lead the previous epoch."""
        self.last_caught_up_ms = now_ms if is_in_isr else NEVER_MS
        if is_new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = None
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = now_ms if is_in_isr else NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms
