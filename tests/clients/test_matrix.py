"""Each stock client produces with each codec; every stock client reads back exactly what was sent."""

from __future__ import annotations

import pytest

from tests.clients.adapters import CODECS, Client
from tests.clients.conftest import CLIENTS, find_client
from tests.clients.topics import as_sent, create_topic, in_order
from tests.support.messages import RECENT_MS, Message
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint

PARTITIONS = 3


def sample_messages(producer: Client) -> list[Message]:
    """Keys, values and headers that are null, empty, binary, long and not ASCII, over all partitions."""
    shapes = [
        (b"key", b"value", ()),
        (None, b"value without a key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
        (b"\x00\xff\x80", bytes(range(256)), (("binary", bytes(range(256))),)),
        (b"headers", b"v", (("a", b"1"), ("a", b"2"), ("", b""), ("naïve", "héader".encode()))),
        (b"null header", b"v", (("none", None if producer.can_send_null_headers else b""),)),
        (b"long", b"0123456789" * 2_000, ()),
    ]
    return [
        Message(partition, key, value, headers, RECENT_MS + 100 * number + partition)
        for number, (key, value, headers) in enumerate(shapes * 3)
        for partition in range(PARTITIONS)
    ]


@pytest.fixture(scope="module")
def produced() -> dict[tuple[str, str], str]:
    """The topic of each (client, codec), filled when a test first asks for it."""
    return {}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer_name", CLIENTS)
def test_every_client_reads_what_one_produced(
    server: ServerProcess,
    produced: dict[tuple[str, str], str],
    request: pytest.FixtureRequest,
    producer_name: str,
    codec: str,
    consumer: Client,
) -> None:
    producer = find_client(producer_name, request)
    messages = sample_messages(producer)
    if (producer_name, codec) not in produced:
        topic = f"matrix-{producer_name}-{codec}"
        create_topic(server, topic, partitions=PARTITIONS)
        producer.produce(server, topic, messages, compression=codec)
        produced[producer_name, codec] = topic

    records = consumer.consume(server, produced[producer_name, codec], len(messages))

    assert in_order(records) == as_sent(messages)


@pytest.mark.secured(only=True)
def test_every_client_reads_what_one_produced_over_tls_and_scram(
    endpoint: Endpoint, request: pytest.FixtureRequest, topic_name: str, producer: Client
) -> None:
    """As a user with rights to the topic: an idempotent producer needs none to the cluster (KIP-679)."""
    create_topic(endpoint.server, topic_name, partitions=PARTITIONS)
    messages = sample_messages(producer)

    producer.produce(endpoint, topic_name, messages, compression="zstd", idempotent=True)
    read = {name: find_client(name, request).consume(endpoint, topic_name, len(messages)) for name in CLIENTS}

    assert {name: in_order(records) for name, records in read.items()} == dict.fromkeys(CLIENTS, as_sent(messages))
