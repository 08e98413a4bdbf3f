"""OffsetReads: reads committed offsets for one OffsetFetch.

A stable read must not miss a commit in flight (KIP-447). It waits until everything that the shard had appended before is committed, once
for all groups of the request in that shard. It does not wait for later appends.
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
    """`get_shard` returns a group's shard, or raises the KafkaError that says why it is not here. `size` counts the response's bytes."""

    def __init__(self, get_shard: Callable[[str], Shard[GroupCoordinatorShard]], size: AnswerSize, *, require_stable: bool) -> None:
        self._get_shard = get_shard
        self._size = size
        self._require_stable = require_stable
        self._awaited: dict[Shard[GroupCoordinatorShard], ErrorCode] = {}

    def read(self, group: OffsetFetchRequestGroup) -> Generator[Deferred | None, Any, OffsetFetchResponseGroup]:
        """The group's offsets. KafkaError if the group or member is refused, or if the offsets do not fit into the response."""
        shard = self._get_shard(group.group_id)
        if self._require_stable:
            if shard not in self._awaited:
                self._awaited[shard] = (yield from _await_writes(shard)) if shard.has_writes else ErrorCode.NONE
            # The commits in flight may take too long. Kafka answers with this error too: consumers before 3.9 know no better one.
            if self._awaited[shard] is not ErrorCode.NONE or not shard.is_active:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return (yield from shard.machine.offset_manager.fetch(group, self._size, require_stable=self._require_stable))


def _await_writes(shard: Shard[GroupCoordinatorShard]) -> Generator[Deferred, ErrorCode, ErrorCode]:
    written = Deferred()
    shard.write(CoordinatorResult([], written.complete))
    return (yield written)
