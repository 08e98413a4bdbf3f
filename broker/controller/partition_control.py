"""The controller's decisions about the ISRs that leaders propose: AlterPartition (KIP-497, KIP-841, KIP-903). Computes records, in steps.

The checks are those of ReplicationControlManager.validateAlterPartitionData, in its order: the error decides what the broker does next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.controller.broker_control import BrokerControl
from broker.controller.controller_result import Pace, Steps
from broker.controller.elections import Elections
from broker.controller.partition_change import Election
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionImage, TopicImage
from broker.observability.limited_log import LimitedLog
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)

ANY_BROKER_EPOCH = -1

PARTITION_ELEMENTS = 2
"""What a proposal counts for in a step."""


class PartitionControl:
    """Reads `state`, never changes it."""

    def __init__(self, state: ClusterState, elections: Elections, brokers: BrokerControl) -> None:
        self._state = state
        self._elections = elections
        self._brokers = brokers

    def alter_partition(self, request: AlterPartitionRequest, log: LimitedLog | None = None) -> Steps[AlterPartitionResponse]:
        """Yields the records of the accepted proposals and returns the answers; refusals are written to `log`. Raises KafkaError
        STALE_BROKER_EPOCH, also when the broker has registered again meanwhile."""
        self._brokers.checked(request.broker_id, request.broker_epoch)
        response = AlterPartitionResponse(topics=[])
        step: list[Any] = []
        pace = Pace()
        for asked in request.topics:
            answers: list[AlterPartitionResponsePartitionData] = []
            response.topics.append(AlterPartitionResponseTopicData(topic_id=asked.topic_id, partitions=answers))
            for partition in asked.partitions:
                answers.append(self._alter(request.broker_id, asked.topic_id, partition, step, log))
                if pace.is_due(PARTITION_ELEMENTS):
                    yield step
                    step = []
                    self._brokers.checked(request.broker_id, request.broker_epoch)
            if pace.is_due():
                yield step
                step = []
                self._brokers.checked(request.broker_id, request.broker_epoch)
        yield step
        return response

    def _alter(
        self,
        broker_id: int,
        topic_id: bytes,
        asked: AlterPartitionRequestPartitionData,
        records: list[Any],
        log: LimitedLog | None,
    ) -> AlterPartitionResponsePartitionData:
        index = asked.partition_index
        topic = self._state.topics_by_id.get(topic_id)
        if topic is None:
            return _refusal(index, ErrorCode.UNKNOWN_TOPIC_ID)
        # Version 2 has no broker epochs.
        members = asked.new_isr_with_epochs or [BrokerState(broker_id=node_id) for node_id in asked.new_isr]
        error, why = self._find_error(broker_id, topic, asked, members)
        if error is not ErrorCode.NONE:
            if log is not None:
                log.info(
                    "ISR changes refused",
                    "ISR change of broker %d refused partition=%s-%d error=%s: %s",
                    broker_id,
                    topic.name,
                    index,
                    error.name,
                    why,
                )
            return _refusal(index, error)
        image = topic.partitions[index]
        change = self._elections.change(topic, image)
        if self._elections.allows_unclean(topic):
            change.election = Election.UNCLEAN
        change.isr = [member.broker_id for member in members]
        change.leader_recovery_state = asked.leader_recovery_state
        record = change.build(topic.topic_id, index)
        leader_epoch, partition_epoch = image.leader_epoch, image.partition_epoch
        if record is not None:
            records.append(record)
            partition_epoch += 1
            if record.leader == image.leader:
                leader_epoch += 1
            elif record.leader != NO_LEADER_CHANGE:
                # This ISR completes a reassignment, which gives the leadership to another broker. Newer metadata tells to which.
                return _refusal(index, ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResponsePartitionData(
            partition_index=index,
            leader_id=image.leader,
            leader_epoch=leader_epoch,
            isr=list(image.isr) if record is None or record.isr is None else record.isr,
            leader_recovery_state=change.leader_recovery_state,
            partition_epoch=partition_epoch,
        )

    # -- checks --------------------------------------------------------------------------------------------------------

    def _find_error(
        self, broker_id: int, topic: TopicImage, asked: AlterPartitionRequestPartitionData, members: Sequence[BrokerState]
    ) -> tuple[ErrorCode, str]:
        if not 0 <= asked.partition_index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
        image = topic.partitions[asked.partition_index]
        if asked.leader_epoch > image.leader_epoch or asked.partition_epoch > image.partition_epoch:
            # The leader has a newer epoch, which another controller must have given it. It has to find that controller.
            return ErrorCode.NOT_CONTROLLER, f"its epochs are newer than {image.leader_epoch} and {image.partition_epoch}"
        if asked.leader_epoch < image.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {image.leader_epoch}, not {asked.leader_epoch}"
        if broker_id != image.leader:
            return ErrorCode.INVALID_REQUEST, f"the leader is {image.leader}"
        if asked.partition_epoch < image.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {image.partition_epoch}, not {asked.partition_epoch}"
        return self._find_isr_error(image, asked.leader_recovery_state, members)

    def _find_isr_error(self, image: PartitionImage, recovery_state: int, members: Sequence[BrokerState]) -> tuple[ErrorCode, str]:
        isr = [member.broker_id for member in members]
        if len(set(isr)) != len(isr) or not set(isr) <= set(image.replicas):
            return ErrorCode.INVALID_REQUEST, f"the ISR {isr} is invalid for replicas {list(image.replicas)}"
        if image.leader not in isr:
            return ErrorCode.INVALID_REQUEST, f"the ISR {isr} lacks the leader"
        if recovery_state not in (RECOVERED, RECOVERING):
            return ErrorCode.INVALID_REQUEST, f"there is no leader recovery state {recovery_state}"
        if recovery_state == RECOVERING and len(isr) > 1:
            return ErrorCode.INVALID_REQUEST, f"the leader still recovers from an unclean election, and the ISR is {isr}"
        if recovery_state == RECOVERING and image.leader_recovery_state == RECOVERED:
            return ErrorCode.INVALID_REQUEST, "the leader has recovered already"
        ineligible = {member.broker_id: why for member in members if (why := self._find_ineligibility(member))}
        if ineligible:
            return ErrorCode.INELIGIBLE_REPLICA, str(ineligible)
        return ErrorCode.NONE, ""

    def _find_ineligibility(self, member: BrokerState) -> str:
        broker = self._state.brokers.get(member.broker_id)
        if broker is None:
            return "not registered"
        if broker.is_in_controlled_shutdown:
            return "shutting down"
        if broker.is_fenced or self._elections.is_being_fenced(member.broker_id):
            return "fenced"
        if member.broker_epoch not in (ANY_BROKER_EPOCH, broker.epoch):
            return f"broker epoch {member.broker_epoch}, not {broker.epoch}"
        return ""


def _refusal(index: int, error: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(partition_index=index, error_code=error)
