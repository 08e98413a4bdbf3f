"""The settings of a KIP-848 group: its own dynamic configs, and the broker's where it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.groups.group_config import GroupConfig


class GroupSettings:
    """`overrides` returns the dynamic configs of a group."""

    def __init__(self, config: GroupConfig, overrides: Callable[[str], Mapping[str, str]]) -> None:
        self._config = config
        self._overrides = overrides

    def session_timeout_ms(self, group_id: str) -> int:
        return self._setting(group_id, "consumer.session.timeout.ms", self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._setting(group_id, "consumer.heartbeat.interval.ms", self._config.consumer_heartbeat_interval_ms)

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._setting(group_id, "consumer.assignment.interval.ms", self._config.consumer_assignment_interval_ms)

    def _setting(self, group_id: str, name: str, default: int) -> int:
        overrides = self._overrides(group_id)
        return int(overrides[name]) if name in overrides else default
