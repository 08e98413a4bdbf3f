"""IsrChanges: sends the ISRs that leaders propose to the controller, and passes on its answers.

One AlterPartition is in flight at most. Proposals made meanwhile go with the next one, all partitions together: a follower that vanishes
costs a few requests, not one for each partition. A request is repeated until it is answered, because only the controller's answer, or newer
metadata, tells a leader the outcome.

Source: kafka.server.DefaultAlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from broker.loop.clock import Clock, Timer
from broker.metadata.image import RECOVERED, RECOVERING
from broker.observability.limited_log import LimitedLog
from broker.replication.isr.isr_state import IsrProposal, OnIsrAnswer
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

log = logging.getLogger("barnabas.replication")

RETRY_MS = 50
"""How soon a request, or a partition of it, that failed is sent again (Kafka's)."""
RETRY_MAX_MS = 1_000
"""The wait doubles up to this while no controller answers."""
PARTITIONS_PER_REQUEST_MAX = 500
"""The rest go with the next request: building this one, and taking its answers, take 2 ms each. Kafka knows no bound."""

PartitionKey = tuple[bytes, int]
"""Topic id and partition index."""


class AlterPartitionChannel(Protocol):
    """The part of the channel to the controller (broker/controller/channel.py) that IsrChanges uses."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Returns the controller's answer. OSError when there was none; KafkaError when the request cannot be sent; DecodeError when the
        answer cannot be read."""


class _Change(NamedTuple):
    proposal: IsrProposal
    on_answer: OnIsrAnswer


class IsrChanges:
    """See the module's docstring. `broker_epoch()` returns the epoch of this broker's registration; it is called for each request."""

    def __init__(self, channel: AlterPartitionChannel, clock: Clock, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._clock = clock
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._changes: dict[PartitionKey, _Change] = {}  # until they are answered, so those in flight too
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._retry_ms = RETRY_MS
        self._is_stopped = False
        self._log = LimitedLog(log, clock)

    def submit(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        """Send `proposal` with the next request. While an earlier proposal of its partition waits for its answer, it is refused at once
        with OPERATION_NOT_ATTEMPTED, also if newer metadata has made that one void."""
        key = proposal.topic_id, proposal.partition
        if key in self._changes:
            answer = AlterPartitionResponsePartitionData(partition_index=proposal.partition, error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
            on_answer(answer, self._clock.monotonic_ms())
            return
        self._changes[key] = _Change(proposal, on_answer)
        if self._timer is None:
            self._maybe_send()

    async def stop(self) -> None:
        """Stop sending. A request in flight is abandoned, and its answer ignored."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _maybe_send(self) -> None:
        self._timer = None
        if self._changes and self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        """Send one request, with everything that was proposed before this task began."""
        sent = tuple(islice(self._changes.values(), PARTITIONS_PER_REQUEST_MAX))
        retry_ms = await self._exchange(sent)
        self._task = None
        if retry_ms and not self._is_stopped:
            self._timer = self._clock.call_later(retry_ms, self._maybe_send)
        else:
            self._maybe_send()

    async def _exchange(self, sent: Sequence[_Change]) -> int:
        """Returns after how many milliseconds the next request may be sent."""
        try:
            response = await self._channel.alter_partition(self._request(sent))
            if response.error_code == ErrorCode.NONE:
                self._retry_ms = RETRY_MS
                left_count = self._take_answers(sent, response)
                if left_count:
                    self._log.warning("repeated", "AlterPartition is sent again for partitions=%d of %d", left_count, len(sent))
                return RETRY_MS if left_count else 0
            self._log.warning("refused", "AlterPartition refused error=%s partitions=%d", _error_name(response.error_code), len(sent))
        except (OSError, KafkaError, DecodeError) as error:
            self._log.warning("failed", "AlterPartition failed error=%r partitions=%d", error, len(sent))
        except Exception as bug:
            # A bug must not stop all later changes of all partitions.
            self._log.error("bug", "AlterPartition failed partitions=%d", len(sent), exc_info=bug)
        retry_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, RETRY_MAX_MS)
        return retry_ms

    def _request(self, sent: Sequence[_Change]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for change in sent:
            proposal = change.proposal
            topic = topics.get(proposal.topic_id)
            if topic is None:
                topic = topics[proposal.topic_id] = AlterPartitionRequestTopicData(topic_id=proposal.topic_id, partitions=[])
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=proposal.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch) for member in proposal.members
                    ],
                    leader_recovery_state=proposal.leader_recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values()))

    def _take_answers(self, sent: Sequence[_Change], response: AlterPartitionResponse) -> int:
        """Give each partition its answer. Returns how many changes to send again; those that the controller left out are among them."""
        answers = {(topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions}
        now_ms = self._clock.monotonic_ms()
        left_count = 0
        for change in sent:
            key = change.proposal.topic_id, change.proposal.partition
            answer = answers.get(key)
            if answer is None:
                left_count += 1
                continue
            if answer.leader_recovery_state not in (RECOVERED, RECOVERING):
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            del self._changes[key]  # the answer may make its partition propose the next one
            if change.on_answer(answer, now_ms):
                self._changes[key] = change
                left_count += 1
        return left_count


def _error_name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return str(error_code)
