"""Answers to heartbeats of groups that are being assigned in pieces: they wait until that is done, so that they tell what came of it, as
those of small groups do.

What the heartbeat itself changed is stored at once. Once the group is assigned, the member is moved on as by another heartbeat that says
the same, and what both came to is one answer. It comes once: what the next assignment brings, the member's next heartbeat tells.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.groups.consumer.member import JOIN_EPOCH
from broker.groups.consumer.outcome import Outcome
from broker.groups.consumer.requests import error_response
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from broker.groups.consumer.assignments import Assignments
    from broker.groups.consumer.outcome import RecordWriter
    from broker.groups.requester import Requester

Answer = Callable[[ConsumerGroupHeartbeatResponse], None]
Heartbeat = Callable[["Requester", ConsumerGroupHeartbeatRequest], Outcome]


class LateAnswers:
    """Of the groups of one shard. `heartbeat` computes what a heartbeat comes to."""

    def __init__(self, assignments: Assignments, heartbeat: Heartbeat, writer: RecordWriter) -> None:
        self._assignments = assignments
        self._heartbeat = heartbeat
        self._writer = writer

    def answer(
        self, requester: Requester, request: ConsumerGroupHeartbeatRequest, answer: Answer, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Give the response to what the request came to, now or when the group is assigned."""
        if response.error_code or request.member_epoch < JOIN_EPOCH or not self._assignments.is_running(request.group_id):
            answer(response)
        else:
            self._assignments.when_done(request.group_id, partial(self._move_on, requester, request, answer, response))

    def _move_on(
        self, requester: Requester, request: ConsumerGroupHeartbeatRequest, answer: Answer, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        if not self._writer.is_active:
            answer(error_response(ErrorCode.NOT_COORDINATOR))
            return
        again = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=response.member_id or "",
            member_epoch=response.member_epoch,
            instance_id=request.instance_id,
            topic_partitions=request.topic_partitions,
        )
        try:
            outcome = self._heartbeat(requester, again)
        except KafkaError:
            answer(response)  # the member is gone meanwhile: its next heartbeat is told so
            return
        if outcome.response.assignment is None:
            outcome.response.assignment = response.assignment
        self._writer.run(outcome.answered_by(answer, error_response))
