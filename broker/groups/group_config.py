"""The group coordinator's configuration: the `group.*` and `offsets.*` properties that it uses, and limits that Kafka does not have."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from config.server import ServerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long the first JoinGroup of a member may wait before the member must send it again (GroupCoordinatorConfig)."""

MAX_PENDING_MEMBERS = 10_000
"""Member ids per group that were handed out and have not joined. Kafka has no such limit; each costs memory and a timer."""

MAX_MEMBER_PROTOCOLS = 1_000
"""Protocols that one member may offer. Kafka has no such limit. Consumers offer a handful, one for each configured assignor."""

MAX_MEMBER_SIZE_BYTES = 4 * 1024 * 1024
"""Bytes of the names and metadata of one member's protocols. Kafka has no such limit. More would hold the loop for too long while it is
copied and stored."""

MAX_MEMBERSHIP_SIZE_BYTES = 16 * 1024 * 1024
"""The same for all members of a group together. Kafka has no such limit. A larger group could not be stored in one record of
`__consumer_offsets`, whose max.message.bytes is 1 MB by default."""

MAX_ASSIGNMENTS_SIZE_BYTES = 8 * 1024 * 1024
"""Bytes of the assignments of all members of a generation. A larger one gets the error that Kafka gives for a record beyond
max.message.bytes, but before it is encoded."""


class MigrationPolicy(Enum):
    """In which direction groups with members may change between the classic and the consumer protocol."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class GroupConfig(NamedTuple):
    """Kafka's properties, with Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_size: int = 4096
    commit_timeout_ms: int = 5_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_assignment_interval_ms: int = 1_000
    has_consumer_protocol: bool = True
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_server(cls, config: ServerConfig) -> GroupConfig:
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            offset_metadata_max_size=config.offset_metadata_max_bytes,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=config.group_consumer_assignors,
            consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            has_consumer_protocol="consumer" in config.group_coordinator_rebalance_protocols,
            migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
            regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        )
