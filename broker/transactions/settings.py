"""TransactionSettings: what the configuration says of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from config.server import ServerConfig


class TransactionSettings(NamedTuple):
    """Kafka's properties, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    is_two_phase_commit_enabled: bool = False
    abort_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000
    write_timeout_ms: int = 5_000
    """How long an answer waits for its commit. Kafka has no property for it: it waits as long as the transaction's timeout."""

    @classmethod
    def from_server(cls, config: ServerConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            is_two_phase_commit_enabled=config.transaction_two_phase_commit_enable,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
