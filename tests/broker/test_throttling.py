"""Quotas of requests, through dispatch and the real handlers: what counts, what the answer tells, and for how long its connection is
muted.

The clock stands unless a test moves it, so that each throttle time is that of Kafka's formulas: eleven windows of a second, of which ten
are complete.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.dispatch import KafkaApis
from broker.handlers.services import Services
from broker.loop.cpu_time import CpuMeter, NetworkTime
from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.security.quotas.charge import EXEMPT_KEYS
from broker.security.quotas.quota_managers import QuotaManagers
from broker.worker.inline import InlineWorker
from broker.worker.lines import Lines
from protocol import codec
from protocol.apis import APIS, ListenerKind
from protocol.framing import keep
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from storage.file_slice import FileSlice
from storage.validation import LONG_CHECK_BYTES
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import World, batch
from tests.support.wire import frame

WINDOW_S = 10
OVER_MS = 12_000
"""After which nothing counts that was counted before."""
PRODUCE_VERSION, FETCH_VERSION = 9, 12
SIZE_FIELD_BYTES = 4


class Server:
    """Dispatch and handlers, and one client's connection whose throttle times are noted."""

    def __init__(self, root: Path, *, principal: str = "User:alice", client_id: str = "app") -> None:
        self.world = World(root)
        self.world.create_topic("a", partitions=2)
        self.loop = TurnLoop()
        clock = self.world.clock
        self.quotas = QuotaManagers(
            window_ms=1000,
            windows_count=11,
            controller_window_ms=1000,
            controller_windows_count=11,
            cpu_meter=CpuMeter(clock.monotonic_ns, clock.cpu_ns),
        )
        self.services: Services = self.world.services()._replace(quotas=self.quotas)
        self.apis = KafkaApis(self.services, self.loop.turns)
        self.muted_ms: list[int] = []
        self.facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        self.facts.principal = principal
        self.facts.throttle = self.muted_ms.append
        self.client_id = client_id
        self.request_bytes = 0

    def limit(self, key: str, value: float, *, user: str = "alice") -> None:
        assert self.quotas.update([("user", user)], key, value)

    def send(self, message: Any, version: int) -> Any:
        """The outcome of dispatch."""
        key = next(key for key, api in APIS.items() if api.request_class is type(message))
        request = frame(key, version, codec.encode(message, version), client_id=self.client_id.encode())
        self.request_bytes = len(request)
        return self.apis.handle(keep(memoryview(bytearray(request))), self.facts)

    def ask(self, message: Any, version: int) -> Any:
        """The answer, None if there is none."""
        outcome = self.send(message, version)
        if isinstance(outcome, Deferred):
            self.loop.run()
            assert outcome.is_done, "it waits"
            outcome = outcome.take()
        if outcome is None:
            return None
        api = next(api for api in APIS.values() if api.request_class is type(message))
        answer = b"".join(chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in outcome)
        for chunk in outcome:
            if isinstance(chunk, FileSlice):
                chunk.release()
        return codec.decode(api.response_class, version, answer, 8 + api.response_header_version(version))[0]

    def produce(self, size: int, *, acks: int = 1, topic: str = "a", version: int = PRODUCE_VERSION) -> ProduceResponse | None:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch("x" * size)))])
        response: ProduceResponse | None = self.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), version)
        return response

    def fetch(self, offset: int = 0, **fields: Any) -> FetchResponse:
        asked = FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)])
        request = FetchRequest(**({"topics": [asked], "max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1} | fields))
        response: FetchResponse = self.ask(request, FETCH_VERSION)
        return response

    def list_offsets(self) -> Any:
        topic = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        return self.ask(ListOffsetsRequest(topics=[topic]), 7)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def records_size(response: FetchResponse) -> int:
    return sum(len(partition.records or b"") for topic in response.responses for partition in topic.partitions)  # type: ignore[arg-type]


def throttle_ms(size: int, limit: float) -> int:
    """(O - T) / T x the windows' time."""
    return round((size / WINDOW_S - limit) / limit * WINDOW_S * 1000)


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4, 5, 8, 9, 12])
def test_produce_over_its_quota_is_done_told_and_muted(server: Server, version: int) -> None:
    server.limit("producer_byte_rate", 100)

    response = server.produce(2000, version=version)

    assert response is not None
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert response.throttle_time_ms == throttle_ms(server.request_bytes, 100)
    assert server.muted_ms == [response.throttle_time_ms]


def test_produce_within_its_quota_is_not_muted(server: Server) -> None:
    server.limit("producer_byte_rate", 100_000)

    response = server.produce(2000)

    assert response is not None and response.throttle_time_ms == 0
    assert server.muted_ms == []


def test_bytes_of_failed_produces_count_too(server: Server) -> None:
    server.limit("producer_byte_rate", 100)

    response = server.produce(2000, topic="unknown")

    assert response is not None
    assert response.throttle_time_ms == throttle_ms(server.request_bytes, 100)
    assert server.muted_ms == [response.throttle_time_ms]


def test_produce_without_acks_is_muted_for_its_bytes_alone(server: Server) -> None:
    server.limit("producer_byte_rate", 100)
    server.limit("request_percentage", 0.000001)

    assert server.produce(2000, acks=0) is None

    assert server.muted_ms == [throttle_ms(server.request_bytes, 100)]


def test_other_users_are_not_limited(server: Server) -> None:
    server.limit("producer_byte_rate", 1, user="bob")

    response = server.produce(2000)

    assert response is not None and response.throttle_time_ms == 0


def test_fetch_over_its_quota_leaves_empty_and_does_not_count(server: Server) -> None:
    server.produce(700)
    server.produce(700)
    server.limit("consumer_byte_rate", 100)  # at most 1000 bytes in the windows, so that one batch is read at a time

    first = server.fetch(0)
    assert 700 < records_size(first) < 1000 and first.throttle_time_ms == 0
    second = server.fetch(1)
    assert records_size(second) == 0
    assert second.throttle_time_ms > 0
    assert server.muted_ms == [second.throttle_time_ms]
    server.world.clock.advance(OVER_MS)

    again = server.fetch(1)

    assert records_size(again) > 700
    assert server.muted_ms == [second.throttle_time_ms]


def test_fetch_reads_no_more_than_the_quota_allows_in_its_windows(server: Server) -> None:
    """KAFKA-9677: more would be taken back each time, and the consumer would get nothing for ever."""
    for _ in range(10):
        server.produce(700)
    server.limit("consumer_byte_rate", 200)

    response = server.fetch(0)

    assert 700 < records_size(response) < 2000
    assert response.throttle_time_ms == 0


def test_min_bytes_is_bounded_too(server: Server) -> None:
    server.produce(900)
    server.produce(900)
    server.limit("consumer_byte_rate", 100)

    response = server.fetch(0, min_bytes=1_000_000, max_wait_ms=1000)

    assert records_size(response) > 0


def test_a_batch_larger_than_the_quota_s_windows_gets_through_once_nothing_else_counts(server: Server) -> None:
    server.produce(5000)
    server.limit("consumer_byte_rate", 100)

    first = server.fetch(0)
    assert records_size(first) > 5000
    assert server.muted_ms == [first.throttle_time_ms]
    assert first.throttle_time_ms > throttle_ms(5000, 100)
    second = server.fetch(0)

    assert records_size(second) == 0


def test_a_throttled_fetch_leaves_its_session_as_it_was(server: Server) -> None:
    server.produce(700)
    server.produce(700)
    server.limit("consumer_byte_rate", 100)
    began = server.fetch(0, session_epoch=0)
    assert began.session_id and records_size(began) > 0

    asked = [FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)])]
    throttled = server.fetch(session_id=began.session_id, session_epoch=1, topics=asked)
    assert (throttled.session_id, throttled.error_code, throttled.responses) == (began.session_id, 0, [])
    assert throttled.throttle_time_ms > 0
    server.world.clock.advance(OVER_MS)
    then = server.fetch(session_id=began.session_id, session_epoch=2, topics=[])

    assert records_size(then) > 700


def test_a_throttled_full_fetch_begins_no_session(server: Server) -> None:
    server.produce(700)
    server.limit("consumer_byte_rate", 100)
    server.fetch(0)

    response = server.fetch(0, session_epoch=0)

    assert response.throttle_time_ms > 0
    assert response.session_id == 0


def test_followers_are_exempt(server: Server) -> None:
    server.world.create_topic("b", replicas=(1, 2))
    server.produce(5000, topic="b")
    server.limit("consumer_byte_rate", 1)
    server.limit("request_percentage", 0.000001)

    asked = [FetchTopic(topic="b", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    response = server.fetch(topics=asked, replica_id=2, replica_state=ReplicaState())

    assert records_size(response) > 5000
    assert server.muted_ms == []


# -- time ------------------------------------------------------------------------------------------------------------


def compute_in_handler(server: Server, key: int, ms: float, *, inside: Any = None) -> None:
    """Let the handler of `key` take CPU time."""
    routes = server.apis._routes
    api = APIS[key]
    handler, error_response = routes._handler(api)

    def handle(context: Any, request: Any) -> Any:
        server.world.clock.compute(ms)
        return handler(context, request)

    routes._handlers[key] = handle, error_response


LIST_OFFSETS_KEY = 2


def test_time_over_the_quota_is_told_and_mutes_for_a_window_at_most(server: Server) -> None:
    server.limit("request_percentage", 1)
    compute_in_handler(server, LIST_OFFSETS_KEY, 101)  # 1.01 percent of the windows' time

    first = server.list_offsets()
    second = server.list_offsets()

    assert first.throttle_time_ms == 100
    assert second.throttle_time_ms == 1000
    assert server.muted_ms == [100, 1000]


def test_waits_cost_nothing(server: Server) -> None:
    server.limit("request_percentage", 0.001)

    outcome = server.send(
        FetchRequest(
            topics=[FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])],
            max_wait_ms=5000,
            min_bytes=1,
            session_epoch=-1,
        ),
        FETCH_VERSION,
    )
    assert isinstance(outcome, Deferred) and not outcome.is_done
    server.world.clock.advance(5000)

    assert outcome.is_done
    assert server.muted_ms == []


def test_a_fetch_that_an_append_wakes_pays_for_its_read(server: Server) -> None:
    server.limit("request_percentage", 1)
    server.limit("request_percentage", 1, user="bob")
    asked = FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    waiting = server.send(FetchRequest(topics=[asked], max_wait_ms=5000, min_bytes=1, session_epoch=-1), FETCH_VERSION)
    handler = server.apis._routes._handlers[1][0].__self__  # type: ignore[attr-defined]
    read_one = handler.reader.read_one

    def slow_read_one(*arguments: Any, **options: Any) -> Any:
        server.world.clock.compute(500)
        return read_one(*arguments, **options)

    handler.reader.read_one = slow_read_one
    server.facts = ConnectionFacts(2, ListenerFacts("PLAINTEXT"), "127.0.0.1")
    server.facts.principal = "User:bob"
    muted_ms = server.muted_ms
    bobs_muted_ms: list[int] = []
    server.facts.throttle = bobs_muted_ms.append

    response = server.produce(100)

    assert waiting.is_done
    assert muted_ms == [1000]
    assert response is not None and response.throttle_time_ms == 0
    assert bobs_muted_ms == []


def test_what_the_network_took_counts_for_the_next_request(server: Server) -> None:
    server.limit("request_percentage", 1)
    time = server.facts.network_time = NetworkTime(server.quotas.cpu_meter)
    begun = time.begin()
    server.world.clock.compute(101)
    assert begun is not None
    time.end(begun)

    first = server.list_offsets()
    server.world.clock.advance(OVER_MS)
    second = server.list_offsets()

    assert (first.throttle_time_ms, second.throttle_time_ms) == (100, 0)


def test_what_the_worker_took_counts(server: Server) -> None:
    """The loop's clock stands; that of the worker goes on by 2 s at each look."""
    worker = InlineWorker(server.loop.call_soon, Lines(count(0, 2_000_000_000).__next__))
    server.apis = KafkaApis(server.services._replace(worker=worker), server.loop.turns)
    server.world.create_topic("checked", compression_type="gzip")
    server.limit("request_percentage", 1)

    response = server.produce(LONG_CHECK_BYTES, topic="checked")

    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == 0
    assert response.throttle_time_ms == 1000


def test_the_longer_of_two_throttle_times_counts(server: Server) -> None:
    server.limit("producer_byte_rate", 190)
    server.limit("request_percentage", 1)
    compute_in_handler(server, 0, 300)

    response = server.produce(1900)

    assert throttle_ms(server.request_bytes, 190) < 1000
    assert response is not None and response.throttle_time_ms == 1000
    assert server.muted_ms == [1000]


def test_nothing_is_measured_without_a_quota_of_time(server: Server) -> None:
    server.limit("producer_byte_rate", 1_000_000)
    compute_in_handler(server, LIST_OFFSETS_KEY, 1000)

    server.list_offsets()

    assert len(server.quotas.request) == 0


def test_every_response_can_tell_a_throttle_time() -> None:
    """In versions without the field it is left out. Not the requests of nodes, which are exempt."""
    of_nodes = EXEMPT_KEYS[ListenerKind.CONTROLLER]
    refused = []
    for key, api in APIS.items():
        if not hasattr(api.response_class(), "throttle_time_ms") or key in of_nodes:
            continue
        for version in range(api.min_version, api.max_version + 1):
            try:
                codec.encode(api.response_class(throttle_time_ms=1), version)
            except Exception as error:
                refused.append((api.name, version, error))

    assert refused == []
