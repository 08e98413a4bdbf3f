"""The same group requests to Apache Kafka and to Barnabas: every answer must be the same, field by field, at every version.

A scenario is a generator of requests that is sent the answers. Member ids, which are random, become the name of the answer they
first came in. Answers whose order Kafka leaves to its hash maps are sorted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.stored.consumer_protocol import ConsumerProtocolSubscription
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "50",
}
MEMBER_ID = re.compile(r"[\w-]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Scenario = Generator[tuple[int, Any], Any, None]
"""Yields (version, request), is sent the response."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    kafka_jars()
    running = [kind(tmp_path_factory.mktemp(kind.name), SETTINGS) for kind in (KafkaServer, BrokerProcess)]
    try:
        for server in running:
            server.start()
            admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
            admin.create_topics({"t": {"num_partitions": 2, "replication_factor": 1}})
            admin.close()
            # A real client's search for its coordinator makes __consumer_offsets, and lasts until that is loaded.
            consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id="first")
            consumer.committed(TopicPartition("t", 0))
            consumer.close()
        yield running
    finally:
        for server in running:
            if server.is_running:
                server.kill()


def play(server: ServerProcess, scenario: Callable[[], Scenario]) -> list[str]:
    """The scenario's requests and the server's answers, as text without what is random."""
    client = WireClient(server.host, server.port)
    lines: list[str] = []
    names: dict[str, str] = {}
    requests = scenario()
    response = None
    try:
        while True:
            version, request = requests.send(response)
            response = client.request(request, version)
            text = f"v{version} {request}\n  -> {_in_order(response)}"
            for found in MEMBER_ID.finditer(text):
                names.setdefault(found.group(), f"<member {len(names)}>")
            lines.append(MEMBER_ID.sub(lambda found: names[found.group()], text))
    except StopIteration:
        return lines
    finally:
        client.close()


def _in_order(response: Any) -> Any:
    if isinstance(response, ListGroupsResponse):
        # Groups of the other tests are listed too.
        response.groups = [group for group in response.groups if group.group_id.startswith("listed")]
    if isinstance(response, ListGroupsResponse | DescribeGroupsResponse):
        response.groups.sort(key=lambda group: group.group_id)
    return response


def join(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    subscription = encode_with_version(ConsumerProtocolSubscription(topics=["t"]), 0)
    protocols = [JoinGroupRequestProtocol(name=name, metadata=subscription) for name in fields.pop("protocols", ["range"])]
    defaults = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "protocols": protocols}
    return JoinGroupRequest(group_id=group, member_id=member_id, **(defaults | fields))


def joined(group: str, version: int, **fields: Any) -> Generator[tuple[int, Any], Any, str]:
    """Joins as the only member; returns the member id."""
    fields |= {} if version else {"rebalance_timeout_ms": -1}
    response = yield version, join(group, **fields)
    if response.error_code:
        response = yield version, join(group, response.member_id, **fields)
    return response.member_id


def sync(group: str, member_id: str, assignment: bytes | None = None, **fields: Any) -> SyncGroupRequest:
    assignments = [] if assignment is None else [SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)]
    defaults = {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
    return SyncGroupRequest(group_id=group, member_id=member_id, **(defaults | fields))


def commit(group: str, member_id: str = "", generation: int = -1, **fields: Any) -> OffsetCommitRequest:
    topics = fields.pop("topics", {"t": [0, 7], "nope": [0]})
    value = fields.pop("value", {"committed_offset": 5, "committed_metadata": "m"})
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(partition_index=index, **value) for index in partitions]
            )
            for name, partitions in topics.items()
        ],
        **fields,
    )


def membership(version: int) -> Scenario:
    group = f"membership-{version}"
    yield version, join("")
    yield version, join(group, session_timeout_ms=10)
    yield version, join(group, "unknown")
    yield version, join(group + "-none", protocols=[])
    member_id = yield from joined(group, version)
    yield version, join(group, protocols=["other"])
    yield version, join(group, protocol_type="connect")
    yield version, join(group, member_id)
    sync_version, heartbeat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)
    for wrong in ({"generation_id": 9}, {"member_id": "unknown"}, {"group_id": group + "-none"}, {"group_id": ""}):
        request = sync(group, member_id)
        heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)
        for name, value in wrong.items():
            setattr(request, name, value)
            setattr(heartbeat, name, value)
        yield sync_version, request
        yield heartbeat_version, heartbeat
    yield heartbeat_version, HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)
    yield min(version, 6), DescribeGroupsRequest(groups=[group, group + "-none", ""])
    if sync_version == 5:
        yield 5, sync(group, member_id, protocol_type=None)
        yield 5, sync(group, member_id, protocol_name="other")
    yield sync_version, sync(group, member_id, b"assignment")
    yield sync_version, sync(group, member_id)
    yield min(version, 6), DescribeGroupsRequest(groups=[group])
    for leaving in ("unknown", member_id, member_id):
        who = {"members": [MemberIdentity(member_id=leaving)]} if leave_version >= 3 else {"member_id": leaving}
        yield leave_version, LeaveGroupRequest(group_id=group, **who)
    yield heartbeat_version, HeartbeatRequest(group_id=group, generation_id=2, member_id=member_id)
    yield sync_version, sync(group, member_id)
    yield version, join(group, member_id)


def offsets(version: int) -> Scenario:
    group = f"offsets-{version}"
    member_id = yield from joined(group, 3)
    yield version, commit(group, member_id, 1)
    yield 3, sync(group, member_id, b"")
    yield version, commit(group, member_id, 1)
    yield version, commit(group, member_id, 2)
    yield version, commit(group, "unknown", 1)
    yield version, commit(group)
    yield version, commit(group, member_id)
    yield version, commit(group + "-none", member_id, 1)
    yield version, commit(group + "-simple")
    yield version, commit("")
    yield version, commit(group, member_id, 1, topics={})
    yield version, commit(group, member_id, 1, topics={"nope": [0]})
    yield version, commit(group, member_id, 1, topics={"t": [1]}, value={"committed_offset": 6, "committed_metadata": None})
    yield version, commit(group, member_id, 1, topics={"t": [1]}, value={"committed_metadata": "x" * 4097})
    yield version, commit(group, member_id, 1, topics={"t": [1]}, value={"committed_offset": -5})
    fetch_version = min(version, 7)
    for name in (group, group + "-simple", group + "-none", ""):
        wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1]), OffsetFetchRequestTopic(name="nope", partition_indexes=[0])]
        yield fetch_version, OffsetFetchRequest(group_id=name, topics=wanted)
        yield fetch_version, OffsetFetchRequest(group_id=name, topics=None)
        groups = [
            OffsetFetchRequestGroup(group_id=name, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 7])]),
            OffsetFetchRequestGroup(group_id=name, topics=None),
            OffsetFetchRequestGroup(group_id=name, topics=[]),
        ]
        yield 8 + version % 2, OffsetFetchRequest(groups=groups, require_stable=version % 2 == 0)


def static_member(version: int) -> Scenario:
    group = f"static-{version}"
    first_id = yield from joined(group, version, group_instance_id="i")
    yield 5, sync(group, first_id, b"assignment", group_instance_id="i")
    again = yield version, join(group, group_instance_id="i")
    yield 5, sync(group, again.member_id, group_instance_id="i")
    yield 4, HeartbeatRequest(group_id=group, generation_id=1, member_id=first_id, group_instance_id="i")
    yield version, join(group, first_id, group_instance_id="i")
    yield 8, commit(group, first_id, 1, group_instance_id="i")
    yield 5, DescribeGroupsRequest(groups=[group])
    yield 5, LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=first_id, group_instance_id="i")])
    yield 5, LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="other"), MemberIdentity(group_instance_id="i")])


def listing() -> Scenario:
    yield 8, commit("listed-simple", topics={"t": [0]})
    member_id = yield from joined("listed", 3)
    yield 3, sync("listed", member_id, b"")
    for version in range(6):
        yield version, ListGroupsRequest()
    for states in (["stable"], ["EMPTY"], ["made-up"]):
        yield 4, ListGroupsRequest(states_filter=states)
    for types in (["Classic"], ["consumer"], ["made-up"]):
        yield 5, ListGroupsRequest(types_filter=types)


@pytest.mark.parametrize("version", range(10))
def test_membership_is_answered_as_by_kafka(servers: list[ServerProcess], version: int):
    kafka, barnabas = (play(server, lambda: membership(version)) for server in servers)

    assert barnabas == kafka


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_answered_as_by_kafka(servers: list[ServerProcess], version: int):
    kafka, barnabas = (play(server, lambda: offsets(version)) for server in servers)

    assert barnabas == kafka


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_are_answered_as_by_kafka(servers: list[ServerProcess], version: int):
    kafka, barnabas = (play(server, lambda: static_member(version)) for server in servers)

    assert barnabas == kafka


def test_listing_is_answered_as_by_kafka(servers: list[ServerProcess]):
    kafka, barnabas = (play(server, listing) for server in servers)

    assert barnabas == kafka
