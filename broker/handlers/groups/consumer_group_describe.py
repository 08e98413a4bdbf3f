"""ConsumerGroupDescribe (key 69): state, epochs and members of KIP-848 groups.

Serves v0–v1.

Behaviour:
- The answer has the committed state. A group of another type, and an unknown one, is GROUP_ID_NOT_FOUND with a message; the Java client
then tries DescribeGroups.
- A group named twice is answered twice, as by Kafka. Groups that do not fit into an answer's size are POLICY_VIOLATION.
- GROUP_AUTHORIZATION_FAILED without DESCRIBE on a group; TOPIC_AUTHORIZATION_FAILED for it without DESCRIBE on a topic of its members.
- UNSUPPORTED_VERSION for each group while the protocol is not served (see ConsumerGroupHeartbeat).

Version notes:
- v1: member_type, whether a member speaks the classic protocol (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns, make_in_turns
from broker.network.answer_size import AnswerSize
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)

MEMBER_BYTES = 200  # of a member's ids and addresses in an answer, roughly
TOPIC_BYTES = 40
UNDESCRIBED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
PARTITION_BYTES = 4


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Any:
        if not coordinator.has_consumer_protocol:
            return error_response(request, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        return at_once_or_in_turns(_answer(context.access, request), IDS_AT_ONCE)

    def _answer(access: Access, request: ConsumerGroupDescribeRequest) -> Work:
        groups: list[DescribedConsumerGroup] = []
        size = AnswerSize()
        for group_id in request.group_ids:
            try:
                _check_group(access, group_id)
                group = yield from coordinator.describe_consumer_group(group_id)
                size.take(_size_bytes(group))
                if not access.is_open:
                    yield from _check_topics(access, group)
            except KafkaError as e:
                group = _failed(group_id, e)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = access.authorized_operations(ResourceType.GROUP, group_id)
            groups.append(group)
            yield
        return ConsumerGroupDescribeResponse(groups=groups)

    return handle


def _check_group(access: Access, group_id: str) -> None:
    """Raises KafkaError GROUP_AUTHORIZATION_FAILED, without words, as Kafka."""
    refusal = access.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    if refusal:
        raise KafkaError(refusal)


def _check_topics(access: Access, group: DescribedConsumerGroup) -> Generator[None, None, None]:
    """Raises KafkaError TOPIC_AUTHORIZATION_FAILED for a group with members whose topics the client may not describe."""
    asked: set[str] = set()
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                if topic.topic_name in asked:
                    continue
                asked.add(topic.topic_name)
                if not access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, UNDESCRIBED_TOPICS)
                yield


def error_response(request: ConsumerGroupDescribeRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_all_failed(request, error))


def _all_failed(request: ConsumerGroupDescribeRequest, error: KafkaError) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    return ConsumerGroupDescribeResponse(groups=(yield from make_in_turns(lambda group_id: _failed(group_id, error), request.group_ids)))


def _failed(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def _size_bytes(group: DescribedConsumerGroup) -> int:
    """Returns roughly the bytes that grow with the members."""
    size_bytes = MEMBER_BYTES * len(group.members)
    for member in group.members:
        size_bytes += sum(map(len, member.subscribed_topic_names))
        for assignment in (member.assignment, member.target_assignment):
            size_bytes += sum(
                TOPIC_BYTES + len(topic.topic_name) + PARTITION_BYTES * len(topic.partitions) for topic in assignment.topic_partitions
            )
    return size_bytes
