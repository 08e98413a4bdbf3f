"""CommittedOffset: one offset that a group has committed (Kafka's OffsetAndMetadata). Its value is never changed."""

from __future__ import annotations

from protocol.messages.stored.group_records import OffsetCommitValue

NO_RETENTION_MS = -1


class CommittedOffset:
    """One group's committed offset in one partition. `sequence` is its place in the order of all replayed commits."""

    __slots__ = ("commit_timestamp_ms", "expire_timestamp_ms", "leader_epoch", "metadata", "offset", "sequence", "topic_id")

    def __init__(self, value: OffsetCommitValue, topic_id: bytes, sequence: int) -> None:
        self.offset = value.offset
        self.leader_epoch = value.leader_epoch
        self.metadata = value.metadata
        self.commit_timestamp_ms = value.commit_timestamp
        self.expire_timestamp_ms = value.expire_timestamp
        self.topic_id = topic_id
        self.sequence = sequence

    def is_expired(self, now_ms: int, base_timestamp_ms: int, retention_ms: int) -> bool:
        """Whether `retention_ms` have passed since `base_timestamp_ms`, or the expiry time that an old commit request gave is over."""
        if self.expire_timestamp_ms != NO_RETENTION_MS:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - base_timestamp_ms >= retention_ms
