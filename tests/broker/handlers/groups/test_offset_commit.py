"""OffsetCommit's answers: which partitions exist, which error goes where."""

from typing import Any

import pytest

from broker.handlers.groups import offset_commit
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.broker.groups.harness import GroupHandlers, over_the_wire, versions
from tests.broker.loop.turn_loop import TurnLoop


def id_of(name: str) -> bytes:
    """As Transcript.create_topic gives it."""
    return name.encode().ljust(16, b"\0")[-16:]


def request(**topics: list[int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=id_of(name),
                partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions],
            )
            for name, partitions in topics.items()
        ],
    )


def errors(response: Any) -> dict[str, dict[int, int]]:
    """Topic → partition → error; a topic answered twice would hide its first answer from clients."""
    names = [topic.name or topic.topic_id.rstrip(b"\0").decode() for topic in response.topics]
    assert len(set(names)) == len(names)
    return {
        name: {found.partition_index: found.error_code for found in topic.partitions}
        for name, topic in zip(names, response.topics, strict=True)
    }


@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_with_every_version(version: int):
    handlers = GroupHandlers()

    response = handlers.call(offset_commit, version, request(t=[0, 1]))

    assert errors(response) == {"t": {0: 0, 1: 0}}
    handlers.script.fetch()
    handlers.script.expect_last("fetch t-0=5 t-1=5")


def test_partitions_that_do_not_exist_are_refused_and_the_others_committed():
    handlers = GroupHandlers()

    response = handlers.call(offset_commit, 8, request(t=[0, 2, -1], nope=[0]))

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(response) == {"t": {0: 0, 2: unknown, -1: unknown}, "nope": {0: unknown}}
    handlers.script.fetch()
    handlers.script.expect_last("fetch t-0=5")


def test_request_of_unknown_partitions_only_asks_no_coordinator():
    handlers = GroupHandlers()
    handlers.script.coordinator.runtime.on_resigned(0)

    response = handlers.call(offset_commit, 8, request(nope=[0]))

    assert errors(response) == {"nope": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_group_error_is_told_for_every_partition_that_exists():
    handlers = GroupHandlers()
    handlers.script.coordinator.runtime.on_resigned(0)

    response = handlers.call(offset_commit, 8, request(t=[0, 7]))

    assert errors(response) == {"t": {0: ErrorCode.NOT_COORDINATOR, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_answer_waits_for_the_commit():
    handlers = GroupHandlers()
    handlers.script.log.is_holding = True

    waiting = handlers.send(offset_commit, 8, request(t=[0, 7]))
    assert not waiting.is_done
    handlers.script.log.commit()

    assert errors(over_the_wire(waiting.value, 8)) == {"t": {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_a_topic_without_partitions_is_told_only_if_it_does_not_exist():
    handlers = GroupHandlers()

    alone = handlers.call(offset_commit, 8, request(t=[]))
    beside_others = handlers.call(offset_commit, 8, request(t=[], nope=[]))

    assert errors(alone) == {}
    assert errors(beside_others) == {"nope": {}}


# -- many partitions ---------------------------------------------------------------------------------------------------

MANY = 2 * offset_commit.PARTITIONS_PER_BATCH


def commit_many(handlers: GroupHandlers, asked: OffsetCommitRequest, *, after_first_commit: Any = None) -> Any:
    """The answer to a request that goes in turns; `after_first_commit()` happens when a part is committed."""
    loop = TurnLoop()
    answer = loop.turns.start(handlers.send(offset_commit, 8, asked))
    if after_first_commit is not None:
        while not handlers.script.lines:
            loop.turn()
        after_first_commit()
    loop.run()
    return over_the_wire(answer.take(), 8)


def test_many_offsets_are_committed_in_turns_and_the_last_one_of_a_partition_counts():
    handlers = GroupHandlers()
    asked = request(t=[0, 1] * MANY)
    asked.topics[0].partitions[-1].committed_offset = 6

    response = commit_many(handlers, asked)

    (topic,) = response.topics
    assert [(found.partition_index, found.error_code) for found in topic.partitions] == [(0, 0), (1, 0)] * MANY
    handlers.script.fetch()
    handlers.script.expect_last("fetch t-0=5 t-1=6")


def test_many_topics_share_batches():
    handlers = GroupHandlers()
    asked = request(t=[0])
    asked.topics *= MANY
    appended: list[int] = []
    commit = handlers.script.coordinator.commit_offsets
    handlers.services.group_coordinator.commit_offsets = lambda part, api_version: (  # type: ignore[method-assign]
        appended.append(len(part.topics)) or commit(part, api_version)
    )

    response = commit_many(handlers, asked)

    assert errors(response) == {"t": {0: 0}}
    assert appended == [offset_commit.PARTITIONS_PER_BATCH] * (MANY // offset_commit.PARTITIONS_PER_BATCH)


def test_coordinator_that_moves_between_two_turns_is_told_for_the_rest():
    handlers = GroupHandlers()

    response = commit_many(handlers, request(t=[0] * MANY), after_first_commit=lambda: handlers.script.coordinator.runtime.on_resigned(0))

    codes = [found.error_code for found in response.topics[0].partitions]
    assert codes[0] == ErrorCode.NONE
    assert codes[-1] == ErrorCode.NOT_COORDINATOR
    assert len(codes) == MANY


def too_large_request() -> OffsetCommitRequest:
    asked = request(t=[0] * MANY, nope=[0])
    for partition in asked.topics[0].partitions:
        partition.committed_metadata = "m" * 4096
    return asked


def test_more_than_one_batch_may_hold_is_refused_whole_as_in_kafka():
    handlers = GroupHandlers()

    response = commit_many(handlers, too_large_request())

    assert errors(response) == {"t": {0: ErrorCode.UNKNOWN_SERVER_ERROR}, "nope": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
    handlers.script.fetch()
    handlers.script.expect_last("fetch nothing")


def test_an_error_of_the_group_comes_before_the_size():
    handlers = GroupHandlers()
    handlers.script.coordinator.runtime.on_resigned(0)

    response = commit_many(handlers, too_large_request())

    assert errors(response)["t"] == {0: ErrorCode.NOT_COORDINATOR}


def test_topics_are_found_by_their_ids_from_version_10():
    handlers = GroupHandlers()

    response = handlers.call(offset_commit, 10, request(t=[0, 7], nope=[0, 1], gone=[]))

    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert errors(response) == {"t": {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "nope": {0: unknown, 1: unknown}, "gone": {}}
    assert {topic.name for topic in response.topics} == {""}
    handlers.script.fetch()
    handlers.script.expect_last("fetch t-0=5")


def test_unknown_ids_alone_ask_no_coordinator():
    handlers = GroupHandlers()
    handlers.script.coordinator.runtime.on_resigned(0)

    assert errors(handlers.call(offset_commit, 10, request(nope=[0]))) == {"nope": {0: ErrorCode.UNKNOWN_TOPIC_ID}}


def test_many_partitions_are_committed_by_their_topics_ids():
    handlers = GroupHandlers()
    handlers.script.create_topic("wide", partitions=300)

    response = handlers.call(offset_commit, 10, request(wide=list(range(301)), nope=[0], t=[0]))

    answered = errors(response)
    assert answered["wide"] == dict.fromkeys(range(300), 0) | {300: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (answered["nope"], answered["t"]) == ({0: ErrorCode.UNKNOWN_TOPIC_ID}, {0: 0})
