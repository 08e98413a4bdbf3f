"""Rights that are given or withdrawn while clients are at work: what counts is what holds when a request arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.authorized_node import Node, started
from tests.peers.odd_request import batch, produce, topic
from tests.peers.rights_requests import GROUP, TOPIC
from tests.peers.rights_settings import EVERYBODY, Setting, rule

READING = Setting("only", AclOperation.READ, ResourceType.TOPIC)
NOBODY = Setting("nobody")
HEARTBEATS_MAX = 200


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with started(tmp_path) as node:
        yield node


def fetch(session_id: int, epoch: int, *, names: bool = False, max_wait_ms: int = 0) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)]
    topics = [FetchTopic(topic=TOPIC, partitions=partitions)] if names else []
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics)


async def fetched(node: Node, request: FetchRequest) -> tuple[int, list[int]]:
    """The session, and the errors of the partitions that are told. Without news nothing is asked, while the rights are the same."""
    response: FetchResponse = await node.ask(request, 12, principal=EVERYBODY, is_checked=False)
    assert response.error_code == ErrorCode.NONE
    return response.session_id, [partition.error_code for topic in response.responses for partition in topic.partitions]


async def test_a_session_of_fetches_ends_to_read_what_is_withdrawn(node: Node) -> None:
    """Its partition has no news, so that nobody would look at it."""
    await node.ask(produce(TOPIC, batch()), 9)
    await node.apply(READING)
    session_id, told = await fetched(node, fetch(0, 0, names=True))
    assert (session_id > 0, told) == (True, [ErrorCode.NONE])
    for epoch in (1, 2):
        assert await fetched(node, fetch(session_id, epoch)) == (session_id, [])

    await node.apply(NOBODY)

    assert await fetched(node, fetch(session_id, 3)) == (session_id, [ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    await node.ask(produce(TOPIC, batch()), 9)
    assert await fetched(node, fetch(session_id, 4)) == (session_id, [ErrorCode.TOPIC_AUTHORIZATION_FAILED])

    await node.apply(READING)

    assert await fetched(node, fetch(session_id, 5)) == (session_id, [ErrorCode.NONE])


async def test_a_fetch_that_waits_for_records_does_not_get_those_of_a_withdrawn_topic(node: Node) -> None:
    """It came after the withdrawal: its session had been let in before."""
    await node.ask(produce(TOPIC, batch()), 9)
    await node.apply(READING)
    session_id, _ = await fetched(node, fetch(0, 0, names=True))
    await fetched(node, fetch(session_id, 1))
    await node.apply(NOBODY)

    waiting = asyncio.ensure_future(node.ask(fetch(session_id, 2, max_wait_ms=5_000), 12, principal=EVERYBODY, is_checked=False))
    await asyncio.sleep(0)
    await node.ask(produce(TOPIC, batch()), 9, is_checked=False)

    (told,) = (await waiting).responses
    assert [(each.error_code, len(each.records or b"")) for each in told.partitions] == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)]


async def test_a_topic_is_created_only_for_who_may(node: Node) -> None:
    await node.apply(Setting("only", AclOperation.DESCRIBE, ResourceType.TOPIC))
    await node.allow(rule(ResourceType.TOPIC, "new", AclOperation.DESCRIBE))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)

    refused = await node.ask(request, 9, principal=EVERYBODY)
    await node.allow(rule(ResourceType.TOPIC, "new", AclOperation.CREATE))
    begun = await node.ask(request, 9, principal=EVERYBODY)

    assert [each.error_code for each in refused.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert [each.error_code for each in begun.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    created = await node.until_ready(request, 9)
    assert [each.name for each in created.topics] == ["new"]


async def test_a_regular_expression_finds_topics_that_its_member_may_describe(node: Node) -> None:
    await node.until_ready(CreateTopicsRequest(topics=[topic("secret")]), 7)
    await node.apply(Setting("only", AclOperation.DESCRIBE, ResourceType.TOPIC))
    await node.allow(rule(ResourceType.GROUP, "by-regex", AclOperation.READ))
    joining = ConsumerGroupHeartbeatRequest(
        group_id="by-regex", member_id="member", member_epoch=0, rebalance_timeout_ms=10_000, subscribed_topic_regex=".*",
        topic_partitions=[],
    )  # fmt: skip
    answer: Any = await node.ask(joining, 1, principal=EVERYBODY)

    assigned: set[bytes] = set()
    for _ in range(HEARTBEATS_MAX):
        assert answer.error_code == ErrorCode.NONE
        if answer.assignment is not None and answer.assignment.topic_partitions:
            assigned = {each.topic_id for each in answer.assignment.topic_partitions}
            break
        await asyncio.sleep(0.02)
        beat = ConsumerGroupHeartbeatRequest(group_id="by-regex", member_id="member", member_epoch=answer.member_epoch)
        answer = await node.ask(beat, 1, principal=EVERYBODY)

    assert assigned == {node.topic_id}


async def test_a_group_is_not_joined_by_who_may_not_read_it(node: Node) -> None:
    await node.apply(Setting("all but", AclOperation.READ, ResourceType.GROUP))
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="member", rebalance_timeout_ms=10_000, subscribed_topic_names=[TOPIC])

    answer = await node.ask(request, 1, principal=EVERYBODY)

    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
