"""TransactionSettings: what the configuration says of transactions."""

from __future__ import annotations

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Kafka's defaults. Times are milliseconds."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    is_two_phase_commit_enabled: bool = False
    """transaction.two.phase.commit.enable"""
    write_timeout_ms: int = 5_000
    """How long an answer waits for its commit."""
