"""Fetch: sizes, isolation, long polling, sessions and errors, over real logs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import fetch
from broker.handlers.produce_fetch.fetch_answers import SESSION_ID_HOLE
from broker.loop.deferred import Deferred
from protocol import codec
from protocol.apis import APIS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData, ReplicaState
from protocol.templates import PreparedResponse
from tests.broker.replication.world import World, batch, completed, context, values

FETCH_KEY = 1
CORRELATION_ID = 77


class Client:
    """A connection to the Fetch handler of `world`."""

    def __init__(self, world: World, version: int = 12) -> None:
        handler = fetch.FetchHandler(world.services())
        self.handler = handler.handle
        self.sessions = handler.sessions
        self.version = version

    def start(self, *topics: FetchTopic, **fields: Any) -> Any:
        asked = FetchRequest(topics=list(topics), **({"min_bytes": 1, "max_wait_ms": 0} | fields))
        return self.handler(context(FETCH_KEY, self.version), asked)

    def fetch(self, *topics: FetchTopic, **fields: Any) -> FetchResponse:
        return self.response(self.start(*topics, **fields))

    def response(self, outcome: Any) -> FetchResponse:
        """What the client decodes of a handler's outcome, which must be there. Gives the records' files back."""
        response = completed(outcome)
        api = APIS[FETCH_KEY]
        if isinstance(response, PreparedResponse):
            chunks = response.to_chunks(CORRELATION_ID)
            head_size = 8
        else:
            chunks = codec.encode_chunks(response, self.version)
            head_size = 0
        body = b"".join(chunk if isinstance(chunk, bytes) else chunk.read() for chunk in chunks)
        for chunk in chunks:
            if not isinstance(chunk, bytes):
                chunk.release()
        if head_size:
            assert struct.unpack_from(">ii", body) == (len(body) - 4, CORRELATION_ID)
            head_size += api.response_header_version(self.version) >= 1
        return codec.decode(FetchResponse, self.version, memoryview(body)[head_size:])[0]


def topic(name: str, *partitions: tuple[int, int], max_bytes: int = 1 << 20, topic_id: bytes = bytes(16), **fields: Any) -> FetchTopic:
    """Asks for (index, fetch offset) of each partition."""
    asked = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **fields) for index, offset in partitions]
    return FetchTopic(topic=name, topic_id=topic_id, partitions=asked)


def parts(response: FetchResponse) -> list[PartitionData]:
    return [part for each in response.responses for part in each.partitions]


def only(response: FetchResponse) -> PartitionData:
    assert len(parts(response)) == 1
    return parts(response)[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("a", partitions=3)
    return world


# -- what is read ----------------------------------------------------------------------------------------------------


def test_batch_that_holds_the_fetch_offset_is_returned_whole(world: World) -> None:
    world.produce("a", batch("0", "1", "2"))

    response = Client(world).fetch(topic("a", (0, 2)))

    assert values(only(response).records) == ["0", "1", "2"]


@pytest.mark.parametrize("version", range(4, 19))
def test_response_can_be_encoded_in_every_version(world: World, version: int) -> None:
    world.produce("a", batch("x"))
    topic_id = world.metadata.topics["a"].topic_id

    response = Client(world, version).fetch(topic("a", (0, 0), topic_id=topic_id if version >= 13 else bytes(16)))

    assert values(only(response).records) == ["x"]


def test_topic_whose_id_looks_like_a_hole_of_the_template_is_served(world: World) -> None:
    topic_id = world.create_topic("b", topic_id=SESSION_ID_HOLE.specimen.to_bytes(16, "big"))
    world.produce("b", batch("x"))

    response = Client(world, 13).fetch(topic("", (0, 0), topic_id=topic_id))

    assert values(only(response).records) == ["x"]


def test_first_batch_larger_than_every_limit_is_returned_and_nothing_more(world: World) -> None:
    for index in (0, 1):
        world.produce("a", batch("x" * 1000), index=index)
        world.produce("a", batch("y" * 1000), index=index)

    response = Client(world).fetch(topic("a", (0, 0), (1, 0), max_bytes=1), max_bytes=1)

    assert values(parts(response)[0].records) == ["x" * 1000]
    assert len(parts(response)[1].records) == 0  # type: ignore[arg-type]


def test_empty_partition_leaves_the_limit_exception_to_the_next(world: World) -> None:
    world.produce("a", batch("x" * 1000), index=1)

    response = Client(world).fetch(topic("a", (0, 0), (1, 0)), max_bytes=10)

    assert len(parts(response)[0].records) == 0  # type: ignore[arg-type]
    assert values(parts(response)[1].records) == ["x" * 1000]


def test_request_limit_holds_for_all_partitions_together(world: World) -> None:
    for index in range(3):
        world.produce("a", batch("x" * 1000), index=index)

    response = Client(world).fetch(topic("a", (0, 0), (1, 0), (2, 0)), max_bytes=2500)

    assert [len(part.records) > 0 for part in parts(response)] == [True, True, False]  # type: ignore[arg-type]


def test_broker_clamps_the_request_to_its_own_limit(tmp_path: Path) -> None:
    world = World(tmp_path, fetch_max_bytes=1024)
    world.create_topic("a", partitions=2)
    for index in (0, 1):
        world.produce("a", batch("x" * 900), index=index)

    response = Client(world).fetch(topic("a", (0, 0), (1, 0)), max_bytes=2**31 - 1)

    assert [len(part.records) > 0 for part in parts(response)] == [True, False]  # type: ignore[arg-type]


def test_negative_limits_are_taken_for_zero(world: World) -> None:
    world.produce("a", batch("x"))

    response = Client(world).fetch(topic("a", (0, 0), max_bytes=-1), max_bytes=-5, min_bytes=-1)

    assert values(only(response).records) == ["x"]


def test_aborted_transactions_are_null_unless_read_committed(world: World) -> None:
    world.produce("a", batch("x"))

    uncommitted = only(Client(world).fetch(topic("a", (0, 0))))
    committed = only(Client(world).fetch(topic("a", (0, 0)), isolation_level=1))
    nothing_new = only(Client(world).fetch(topic("a", (0, 1)), isolation_level=1))

    assert uncommitted.aborted_transactions is None
    assert committed.aborted_transactions == []
    assert nothing_new.aborted_transactions == []


def test_consumer_stops_at_the_high_watermark(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    world.produce("a", batch("replicated"))
    world.follower_fetch(2, "a", 1)
    world.produce("a", batch("not yet"))

    beginning = only(Client(world).fetch(topic("a", (0, 0))))
    beyond = only(Client(world).fetch(topic("a", (0, 2))))

    assert values(beginning.records) == ["replicated"]
    assert (beyond.error_code, beyond.high_watermark, bytes(beyond.records or b"")) == (0, 1, b"")


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 2, 1 << 60])
def test_offset_outside_the_log_is_out_of_range(world: World, offset: int) -> None:
    world.produce("a", batch("x"))

    part = only(Client(world).fetch(topic("a", (0, offset))))

    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (-1, -1, -1)
    assert part.records == b""


def test_leader_epoch_is_checked(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", leader_epoch=5)
    client = Client(world)

    codes = [only(client.fetch(topic("a", (0, 0), current_leader_epoch=epoch))).error_code for epoch in (-1, 5, 4, 6)]

    assert codes == [0, 0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_unknown_names_and_partitions_are_answered_beside_the_known(world: World) -> None:
    response = Client(world).fetch(topic("nobody", (0, 0)), topic("a", (0, 0), (9, 0)))

    codes = [(each.topic, part.partition_index, part.error_code) for each in response.responses for part in each.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(codes) == [("a", 0, 0), ("a", 9, unknown), ("nobody", 0, unknown)]


def test_unknown_topic_id_is_told_as_such(world: World) -> None:
    response = Client(world, 13).fetch(topic("", (0, 0), topic_id=b"\xee" * 16))

    assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert response.responses[0].topic_id == b"\xee" * 16


def test_current_leader_and_its_endpoint_are_told_from_version_16(tmp_path: Path) -> None:
    world = World(tmp_path)
    topic_id = world.create_topic("a", replicas=(2,), leader=2, leader_epoch=3)
    asked = topic("", (0, 0), topic_id=topic_id)

    response = Client(world, 16).fetch(asked)
    older = Client(world, 15).fetch(asked)

    part = only(response)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 3)
    assert [(node.node_id, node.host) for node in response.node_endpoints] == [(2, "host2")]
    assert older.node_endpoints == []


def test_replica_that_is_not_one_is_refused(world: World) -> None:
    """CVE-2018-1288: a client must not move the high watermark by calling itself a replica."""
    world.produce("a", batch("x"))

    by_field = only(Client(world, 12).fetch(topic("a", (0, 0)), replica_id=2))
    topic_id = world.metadata.topics["a"].topic_id
    asked = topic("", (0, 0), topic_id=topic_id, current_leader_epoch=0)
    by_tag = only(Client(world, 15).fetch(asked, replica_state=ReplicaState(replica_id=2)))

    assert by_field.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert by_tag.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_partition_named_twice_is_answered_once_with_the_last_offset(world: World) -> None:
    world.produce("a", batch("0"))
    world.produce("a", batch("1"))

    response = Client(world).fetch(topic("a", (0, 0), (0, 1)))

    assert values(only(response).records) == ["1"]


def test_records_are_sent_as_they_are_whether_the_version_knows_their_codec_or_not(tmp_path: Path) -> None:
    """Kafka 3 refused topics with compression.type=zstd to versions below 10, Kafka 4 does not look at it."""
    world = World(tmp_path)
    world.create_topic("a", compression_type="zstd")
    world.produce("a", batch("x"))

    old, new = (only(Client(world, version).fetch(topic("a", (0, 0)))) for version in (9, 10))

    assert (old.error_code, values(old.records)) == (new.error_code, values(new.records)) == (0, ["x"])
    assert only(Client(world, 9).fetch(topic("a", (0, 5)))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- long polling ----------------------------------------------------------------------------------------------------


def test_fetch_waits_for_the_next_record(world: World) -> None:
    client = Client(world)
    waiting = client.start(topic("a", (0, 0), (1, 0)), max_wait_ms=500)
    assert isinstance(waiting, Deferred) and not waiting.is_done

    world.produce("a", batch("x"), index=1)

    assert values(parts(client.response(waiting))[1].records) == ["x"]
    assert world.clock.pending_timers == []


def test_fetch_answers_empty_when_its_time_is_over(world: World) -> None:
    client = Client(world)
    waiting = client.start(topic("a", (0, 0)), max_wait_ms=500)

    world.clock.advance(499)
    assert not waiting.is_done
    world.clock.advance(1)

    assert bytes(only(client.response(waiting)).records or b"") == b""


def test_long_waits_are_clamped(world: World) -> None:
    waiting = Client(world).start(topic("a", (0, 0)), max_wait_ms=2**31 - 1)

    world.clock.advance(fetch.MAX_WAIT_MS_LIMIT)

    assert waiting.is_done


def test_connection_that_closes_takes_its_parked_fetch_away(world: World) -> None:
    waiting = Client(world).start(topic("a", (0, 0)), max_wait_ms=500)

    waiting.abandon()

    assert world.replica_manager.fetch_purgatory.size == 0
    assert world.clock.pending_timers == []


# -- sessions --------------------------------------------------------------------------------------------------------


def test_session_answers_only_what_is_new(world: World) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0), (1, 0)), session_epoch=0)
    world.produce("a", batch("x"), index=1)

    news = client.fetch(session_id=full.session_id, session_epoch=1)
    again = client.fetch(topic("a", (1, 1)), session_id=full.session_id, session_epoch=2)

    assert full.session_id > 0 and len(parts(full)) == 2
    assert [part.partition_index for part in parts(news)] == [1]
    assert again.session_id == full.session_id and parts(again) == []


def test_unknown_session_and_wrong_epoch_and_changed_mode_are_errors_of_the_whole_request(world: World) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0)), session_epoch=0)

    unknown = client.fetch(session_id=full.session_id + 1, session_epoch=1)
    wrong_epoch = client.fetch(session_id=full.session_id, session_epoch=7)
    client.version = 13
    changed_mode = client.fetch(session_id=full.session_id, session_epoch=1)

    errors = [(response.error_code, response.session_id, response.responses) for response in (unknown, wrong_epoch, changed_mode)]
    assert errors == [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, []),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, []),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, []),
    ]


def test_forgotten_partitions_leave_the_session_and_an_empty_one_ends(world: World) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0), (1, 0)), session_epoch=0)
    world.produce("a", batch("x"), index=0)

    client.fetch(session_id=full.session_id, session_epoch=1, forgotten_topics_data=[ForgottenTopic(topic="a", partitions=[0])])
    last = client.fetch(session_id=full.session_id, session_epoch=2, forgotten_topics_data=[ForgottenTopic(topic="a", partitions=[1])])

    assert last.session_id == 0
    gone = client.fetch(session_id=full.session_id, session_epoch=3)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_request_that_ends_its_session_is_answered_without_one(world: World) -> None:
    """It adds and forgets the only partition (FetchManager.newContext)."""
    client = Client(world)
    world.produce("a", batch("x"), index=0)
    full = client.fetch(topic("a", (0, 0)), session_epoch=0)

    last = client.fetch(
        topic("a", (0, 0)),
        session_id=full.session_id,
        session_epoch=1,
        forgotten_topics_data=[ForgottenTopic(topic="a", partitions=[0])],
    )

    assert (last.session_id, len(only(last).records)) == (0, len(only(full).records))


def test_session_with_topic_ids_learns_of_a_topic_made_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    client = Client(world, 13)
    later_id = (1).to_bytes(16, "big")

    full = client.fetch(topic("", (0, 0), topic_id=later_id), session_epoch=0)
    assert world.create_topic("later") == later_id
    world.produce("later", batch("x"))
    news = client.fetch(session_id=full.session_id, session_epoch=1)

    assert only(full).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values(only(news).records) == ["x"]


@pytest.mark.parametrize("isolation_level", [-1, 2])
def test_an_isolation_level_that_does_not_exist_fails_the_request(world: World, isolation_level: int) -> None:
    request = FetchRequest(topics=[topic("a", (0, 0), (1, 0))], isolation_level=isolation_level)

    with pytest.raises(KafkaError) as refused:
        fetch.build(world.services())(context(FETCH_KEY, 12), request)
    response = fetch.error_response(request, refused.value)

    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [(part.partition_index, part.error_code) for part in parts(response)] == [(0, response.error_code), (1, response.error_code)]


def test_a_negative_leader_epoch_is_not_checked(world: World) -> None:
    world.produce("a", batch("0"))

    response = Client(world).fetch(topic("a", (0, 0), current_leader_epoch=-2))

    assert values(only(response).records) == ["0"]


@pytest.mark.parametrize(("replica_id", "limits"), [(-1, 1), (2, 0)])
def test_the_send_buffer_of_a_consumer_is_limited_and_a_followers_is_not(world: World, replica_id: int, limits: int) -> None:
    client, calls = Client(world, 12), []
    request = FetchRequest(topics=[topic("a", (0, 0))], replica_id=replica_id, max_wait_ms=0)
    consumers = context(FETCH_KEY, 12)
    consumers.connection.limit_send_buffer = lambda: calls.append("limited")

    completed(client.handler(consumers, request))

    assert len(calls) == limits
