"""Groups and their states as the brokers write them: librdkafka does not know those of KIP-848 groups, Assigning and Reconciling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, check
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedConsumerGroup
from protocol.messages.list_groups import ListGroupsRequest

UNKNOWN = "UNKNOWN"
SPELLED = {"PREPARING_REBALANCING": "PreparingRebalance", "COMPLETING_REBALANCING": "CompletingRebalance"}
CONSUMER_PROTOCOL = "consumer"
KINDS = ("classic", "consumer")


class ListedGroup(NamedTuple):
    """`kind` is its type: classic or consumer; that and the state are "" where the broker does not tell them."""

    name: str
    kind: str
    state: str


def states_of(connection: Connection, described: Mapping[str, Any]) -> dict[str, str]:
    """The state of each group that librdkafka has described, in Kafka's words; without those that are CommandErrors. Raises OSError."""
    groups = {name: group for name, group in described.items() if not isinstance(group, CommandError)}
    states = {name: SPELLED.get(group.state.name, group.state.name.title()) for name, group in groups.items()}
    unknown = {name: group for name, group in groups.items() if group.state.name == UNKNOWN}
    return states | {name: told.group_state for name, told in epochs_of(connection, unknown).items()}


def epochs_of(connection: Connection, groups: Mapping[str, Any]) -> dict[str, DescribedConsumerGroup]:
    """What ConsumerGroupDescribe says of each group that librdkafka has described, if it is of KIP-848's protocol. Raises OSError."""
    found: dict[str, DescribedConsumerGroup] = {}
    by_coordinator: dict[int, list[str]] = defaultdict(list)
    for name, group in groups.items():
        by_coordinator[group.coordinator.id].append(name)
    for coordinator, names in by_coordinator.items():
        wire = connection.wire(coordinator)
        if wire.serves(ConsumerGroupDescribeRequest):
            answer = wire.request(ConsumerGroupDescribeRequest(group_ids=names))
            found |= {told.group_id: told for told in answer.groups if told.error_code == ErrorCode.NONE}
    return found


def list_groups(connection: Connection) -> list[ListedGroup]:
    """The consumer groups of all brokers, by name. Raises RefusedError, OSError."""
    found: list[ListedGroup] = []
    for broker_id in connection.metadata().brokers:
        answer = connection.wire(broker_id).request(ListGroupsRequest())
        check(answer.error_code, of=f"broker {broker_id}")
        found += [
            ListedGroup(each.group_id, each.group_type.lower(), each.group_state)
            for each in answer.groups
            if each.protocol_type in ("", CONSUMER_PROTOCOL) and each.group_type.lower() in ("", *KINDS)
        ]
    return sorted(set(found))
