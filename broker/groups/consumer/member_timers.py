"""The timers of the members of KIP-848 groups. Each of them fences the member.

Every member has a session timeout. A member of the consumer protocol must revoke partitions within its rebalance timeout. A member of the
classic protocol must send JoinGroup within it after it was told to join again, and SyncGroup within it after that.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.coordination.timers import Operation, TimerKey
from broker.groups.consumer.member import ConsumerGroupMember

if TYPE_CHECKING:
    from broker.coordination.records import CoordinatorResult
    from broker.coordination.timers import CoordinatorTimers
    from broker.groups.consumer.settings import GroupSettings


class Fence(Protocol):
    """Removes a member of a group, if it still exists and, if `epoch` is given, is in that epoch."""

    def __call__(self, group_id: str, member_id: str, reason: str, epoch: int | None = None) -> CoordinatorResult | None: ...


class MemberTimers:
    """See the module's docstring."""

    def __init__(self, timers: CoordinatorTimers, settings: GroupSettings, fence: Fence) -> None:
        self._timers = timers
        self._settings = settings
        self._fence = fence

    def keep_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Restart the member's session: it ends in `timeout_ms`, by default the group's session timeout, from now."""
        if timeout_ms is None:
            timeout_ms = self._settings.session_timeout_ms(group_id)
        key = _session_key(group_id, member_id)
        self._timers.schedule(key, timeout_ms, self._operation(group_id, member_id, "its session expired"), is_retried=True)

    def await_revocation(self, group_id: str, member: ConsumerGroupMember) -> None:
        """The member was told, in its present epoch, to revoke partitions."""
        reason = "it gave up no partitions within its rebalance timeout"
        key = _revocation_key(group_id, member.member_id)
        operation = self._operation(group_id, member.member_id, reason, member.member_epoch)
        self._timers.schedule(key, member.rebalance_timeout_ms, operation, is_retried=True)

    def revoked(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(_revocation_key(group_id, member_id))

    def await_join(self, group_id: str, member: ConsumerGroupMember) -> None:
        """The member was told to join again. A timer that is running already continues."""
        key = _join_key(group_id, member.member_id)
        operation = self._operation(group_id, member.member_id, "it did not join again within its rebalance timeout")
        self._timers.schedule_if_absent(key, member.rebalance_timeout_ms, operation, is_retried=True)

    def joined(self, group_id: str, member: ConsumerGroupMember) -> None:
        """The member's JoinGroup was answered: it must send SyncGroup next."""
        self._timers.cancel(_join_key(group_id, member.member_id))
        key = _sync_key(group_id, member.member_id)
        operation = self._operation(group_id, member.member_id, "it sent no SyncGroup within its rebalance timeout")
        self._timers.schedule(key, member.rebalance_timeout_ms, operation, is_retried=True)

    def synced(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(_sync_key(group_id, member_id))

    def cancel(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of a member, which is gone or in a classic group now."""
        for key in (_session_key, _revocation_key, _join_key, _sync_key):
            self._timers.cancel(key(group_id, member_id))

    def _operation(self, group_id: str, member_id: str, reason: str, epoch: int | None = None) -> Operation:
        return partial(self._fence, group_id, member_id, reason, epoch)


def _session_key(group_id: str, member_id: str) -> TimerKey:
    return ("consumer session", group_id, member_id)


def _revocation_key(group_id: str, member_id: str) -> TimerKey:
    return ("consumer rebalance", group_id, member_id)


def _join_key(group_id: str, member_id: str) -> TimerKey:
    return ("consumer join", group_id, member_id)


def _sync_key(group_id: str, member_id: str) -> TimerKey:
    return ("consumer sync", group_id, member_id)
