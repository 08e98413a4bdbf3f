"""DescribeQuorum (key 55). Serves v0–v2.

Behaviour: the leader of the metadata quorum answers with the voters and observers and the progress of each (broker/handlers/controller/). A
request for anything but the metadata log's one partition gets UNKNOWN_TOPIC_OR_PARTITION for each of its partitions, from any node.

Version notes: v1 the times at which each replica fetched and was caught up. v2 directory ids, and the voters' endpoints.

Source: KafkaApis.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)

METADATA_TOPIC = "__cluster_metadata"


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: DescribeQuorumRequest) -> Any:
        if not asks_for_the_metadata_log(request):
            context.access.require_on_cluster((AclOperation.DESCRIBE,))
            return refused(request)
        return services.controller.ask_quorum(request, context)

    return handle


def asks_for_the_metadata_log(request: DescribeQuorumRequest) -> bool:
    """Whether the request names the metadata log's partition and nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    return request.topics[0].topic_name == METADATA_TOPIC and request.topics[0].partitions[0].partition_index == 0


def refused(request: DescribeQuorumRequest) -> Any:
    """The answer to any other request."""
    return at_once_or_in_turns(_refused(request))


def _refused(request: DescribeQuorumRequest) -> Work:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = DescribeQuorumResponse(error_message=None, topics=[])
    for topic in request.topics:
        answered = DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=[])
        response.topics.append(answered)
        for each in topic.partitions:
            answered.partitions.append(
                DescribeQuorumResponsePartitionData(partition_index=each.partition_index, error_code=code, error_message=None)
            )
            yield
        yield
    return response
