"""DirectoryAssignments: reports to the controller the log directories of this broker's replicas where the metadata differs.

At most one AssignReplicasToDirs is in flight; later assignments go with the next one. A failed request, or a failed partition of one, is
sent again until the controller accepts it, or until the replica is not this broker's any more. As long as the controller has the wrong
directory, it does not know which replicas are lost when a directory fails.

Source: org.apache.kafka.server.AssignmentsManager, AssignmentsManagerDeadlineFunction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from broker.observability.limited_log import LimitedLog
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from broker.controller.channel import ControllerChannel
    from broker.loop.clock import Clock, Timer
    from broker.metadata.metadata_cache import MetadataCache

logger = logging.getLogger("barnabas.lifecycle")

BATCH_MS = 100
"""How long an assignment waits for others to go with it."""
RETRY_MAX_MS = 10_000
"""The wait doubles up to this while no controller answers."""
ASSIGNMENTS_PER_REQUEST_MAX = 500
"""Building the request takes a millisecond. Kafka's brokers send up to 2250."""

ReplicaKey = tuple[bytes, int]
"""Topic id and partition index."""


class Assignment(NamedTuple):
    directory_id: bytes
    on_accepted: Callable[[], None] | None


class DirectoryAssignments:
    """See the module's docstring. `broker_epoch()` is that of this broker's registration."""

    def __init__(self, channel: ControllerChannel, metadata: MetadataCache, clock: Clock, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._metadata = metadata
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._ready: dict[ReplicaKey, Assignment] = {}
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._retry_ms = BATCH_MS
        self._is_stopped = False
        self._log = LimitedLog(logger, clock)

    def assign(self, key: ReplicaKey, directory_id: bytes, on_accepted: Callable[[], None] | None = None) -> None:
        """Report that the replica is in that directory now. `on_accepted()` is called when the controller has committed that; it is
        never called if the replica is removed or assigned elsewhere before."""
        self._ready[key] = Assignment(directory_id, on_accepted)
        self._schedule(BATCH_MS)

    async def stop(self) -> None:
        """Stop sending; a request in flight is abandoned. The next start compares all replicas with the metadata."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is None and self._task is None and not self._is_stopped:
            self._timer = self._clock.call_later(delay_ms, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        keys = list(islice(self._ready, ASSIGNMENTS_PER_REQUEST_MAX))
        taken = {key: self._ready.pop(key) for key in keys}
        sent = {key: assignment for key, assignment in taken.items() if self._is_replica(key)}
        delay_ms = await self._exchange(sent) if sent else 0
        self._task = None
        if self._ready:
            self._schedule(delay_ms)

    async def _exchange(self, sent: dict[ReplicaKey, Assignment]) -> int:
        """Returns after how many milliseconds the next request may be sent."""
        request = request_of({key: each.directory_id for key, each in sent.items()}, self._metadata.node_id, self._broker_epoch())
        try:
            response = await self._channel.assign_replicas_to_dirs(request)
        except (OSError, KafkaError, DecodeError) as error:
            self._log.warning("failed", "AssignReplicasToDirs failed error=%r replicas=%d", error, len(sent))
            self._keep(sent)
            retry_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, RETRY_MAX_MS)
            return retry_ms
        self._retry_ms = BATCH_MS
        return self._take_answers(sent, response)

    def _take_answers(self, sent: dict[ReplicaKey, Assignment], response: AssignReplicasToDirsResponse) -> int:
        answers = {
            (topic.topic_id, each.partition_index): each.error_code
            for directory in response.directories
            for topic in directory.topics
            for each in topic.partitions
        }
        accepted = [key for key, error_code in answers.items() if error_code == ErrorCode.NONE]
        left = {key: assignment for key, assignment in sent.items() if answers.get(key) != ErrorCode.NONE}
        self._keep(left)
        if any(answers.get(key) != ErrorCode.UNKNOWN_TOPIC_ID for key in left):  # the topic is deleted, which this broker has not read yet
            self._log.warning("repeated", "AssignReplicasToDirs is sent again for replicas=%d of %d", len(left), len(sent))
        for key in accepted:
            on_accepted = sent[key].on_accepted if key in sent and key not in self._ready else None  # not if assigned elsewhere meanwhile
            if on_accepted is not None:
                on_accepted()
        return BATCH_MS if left else 0

    def _keep(self, assignments: Mapping[ReplicaKey, Assignment]) -> None:
        """Queue the assignments to be sent again, except those replaced by newer ones."""
        for key, assignment in assignments.items():
            self._ready.setdefault(key, assignment)

    def _is_replica(self, key: ReplicaKey) -> bool:
        topic_id, index = key
        topic = self._metadata.find_topic_by_id(topic_id)
        return topic is not None and index < len(topic.partitions) and self._metadata.node_id in topic.partitions[index].replicas


def request_of(directories: Mapping[ReplicaKey, bytes], node_id: int, broker_epoch: int) -> AssignReplicasToDirsRequest:
    """Builds the request that assigns each replica to the directory of that id."""
    indexes: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, index), directory_id in directories.items():
        indexes.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
    return AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasToDirsRequestDirectoryData(
                id=directory_id,
                topics=[
                    AssignReplicasToDirsRequestTopicData(
                        topic_id=topic_id, partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=index) for index in each]
                    )
                    for topic_id, each in topics.items()
                ],
            )
            for directory_id, topics in indexes.items()
        ],
    )
