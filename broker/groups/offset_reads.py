"""OffsetReads: what one OffsetFetch reads of committed offsets.

A stable read must not miss a commit in flight (KIP-447): it waits for what its shard had appended before, once for all groups of the
request in that shard, and not for what is appended later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from broker.coordination.records import CoordinatorResult
from broker.coordination.shard import Shard
from broker.groups.shard import GroupCoordinatorShard
from broker.loop.deferred import Deferred
from broker.network.answer_size import AnswerSize
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup


class OffsetReads:
    """`get_shard` finds a group's shard or raises the KafkaError that says why not. `size` is what is left of the answer's size."""

    def __init__(self, get_shard: Callable[[str], Shard[GroupCoordinatorShard]], size: AnswerSize, *, require_stable: bool) -> None:
        self._get_shard = get_shard
        self._size = size
        self._require_stable = require_stable
        self._awaited: dict[Shard[GroupCoordinatorShard], ErrorCode] = {}

    def read(self, group: OffsetFetchRequestGroup) -> Generator[Deferred | None, Any, OffsetFetchResponseGroup]:
        """The group's offsets. KafkaError for what is wrong with the group, or when they do not fit into the answer."""
        shard = self._get_shard(group.group_id)
        if self._require_stable:
            if shard not in self._awaited:
                self._awaited[shard] = (yield from _await_writes(shard)) if shard.has_writes else ErrorCode.NONE
            # What was appended may take too long. Consumers before 3.9 know no better error than this one, as Kafka says.
            if self._awaited[shard] is not ErrorCode.NONE or not shard.is_active:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return (yield from shard.machine.offset_manager.fetch(group, self._size, require_stable=self._require_stable))


def _await_writes(shard: Shard[GroupCoordinatorShard]) -> Generator[Deferred, ErrorCode, ErrorCode]:
    written = Deferred()
    shard.write(CoordinatorResult([], written.complete))
    return (yield written)
