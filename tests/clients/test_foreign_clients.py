"""Example programs of other languages' clients: records of every codec, groups of two members, administration, and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.adapters import CODECS, ConfluentKafka
from tests.clients.foreign_clients import LIBRARIES, ForeignClient, ForeignMember
from tests.clients.members import ConfluentMember, Member, poll_until, share_all
from tests.clients.topics import create_topic, eventually
from tests.support.json_program import ProgramError
from tests.support.messages import Message, Stored
from tests.support.secured_cluster import Endpoint

PARTITIONS = 4
COUNT = 100
KEYED = [Message(0, b"key-%d" % number, b"%d" % number * 50) for number in range(COUNT)]

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """Each library in turn."""
    name: str = request.param
    return name


@pytest.fixture
def client(library: str, endpoint: Endpoint) -> Iterator[ForeignClient]:
    connected = ForeignClient(library, endpoint)
    yield connected
    connected.close()


def pairs(records: list[Stored]) -> list[Pair]:
    return sorted((record.key, record.value) for record in records)


def places(records: list[Stored]) -> set[tuple[int, int, bytes | None]]:
    return {(record.partition, record.offset, record.key) for record in records}


@pytest.mark.secured
def test_records_of_every_codec_are_read_by_others(endpoint: Endpoint, topic_name: str, library: str, client: ForeignClient) -> None:
    create_topic(endpoint.server, topic_name, partitions=PARTITIONS)
    codecs = LIBRARIES[library].written

    told = [record for codec in codecs for record in client.produce(topic_name, KEYED, codec)]
    read = ConfluentKafka().consume(endpoint.server, topic_name, COUNT * len(codecs))

    assert pairs(read) == pairs(told) == sorted((message.key, message.value) for message in KEYED for _ in codecs)
    if "places" not in LIBRARIES[library].lacks:
        assert places(read) == places(told)


def test_records_of_every_codec_from_others_are_read(endpoint: Endpoint, topic_name: str, library: str) -> None:
    create_topic(endpoint.server, topic_name, partitions=PARTITIONS)
    for number, codec in enumerate(CODECS):
        messages = [Message(number % PARTITIONS, message.key, message.value) for message in KEYED]
        ConfluentKafka().produce(endpoint.server, topic_name, messages, compression=codec)

    member = ForeignMember(library, endpoint, topic_name, topic_name)
    records = poll_until([member], lambda read: len(read) >= COUNT * len(CODECS))
    member.close()

    assert pairs(records) == sorted((message.key, message.value) for message in KEYED for _ in CODECS)


@pytest.mark.secured
def test_two_members_share_commit_and_take_over(endpoint: Endpoint, topic_name: str, library: str, client: ForeignClient) -> None:
    create_topic(endpoint.server, topic_name, partitions=PARTITIONS)
    members: list[Member] = [ForeignMember(library, endpoint, topic_name, topic_name) for _ in range(2)]
    poll_until(members, lambda _: share_all(members, PARTITIONS))

    client.produce(topic_name, KEYED, "gzip")
    records = poll_until(members, lambda read: len(read) >= COUNT)
    for member in members:
        member.commit()
    described = client.ask("group", group=topic_name)
    offsets = client.ask("offsets", group=topic_name, topic=topic_name)["offsets"]
    members[0].close()
    poll_until(members[1:], lambda _: share_all(members[1:], PARTITIONS))
    client.produce(topic_name, KEYED)
    records += poll_until(members[1:], lambda read: len(read) >= COUNT)
    members[1].close()

    assert pairs(records) == sorted((message.key, message.value) for message in KEYED * 2)
    assert (described["state"], described["members"]) == ("Stable", 2)
    assert sum(max(offset, 0) for offset in offsets.values()) == COUNT


def test_a_member_resumes_where_librdkafka_committed(endpoint: Endpoint, topic_name: str, library: str, client: ForeignClient) -> None:
    create_topic(endpoint.server, topic_name, partitions=PARTITIONS)
    client.produce(topic_name, KEYED)
    other = ConfluentMember(endpoint.server, topic_name, topic_name)
    poll_until([other], lambda read: len(read) >= COUNT)
    other.commit()
    other.close()

    later = [Message(0, b"later-%d" % number, b"v") for number in range(COUNT)]
    client.produce(topic_name, later, "gzip")
    member = ForeignMember(library, endpoint, topic_name, topic_name)
    records = poll_until([member], lambda read: len(read) >= COUNT)
    member.close()

    assert pairs(records) == sorted((message.key, message.value) for message in later)


@pytest.mark.secured
def test_topics_are_administered(endpoint: Endpoint, topic_name: str, library: str, client: ForeignClient) -> None:
    client.ask("create", topic=topic_name, partitions=2, configs={"cleanup.policy": "compact"})
    eventually(lambda: client.ask("topics")["topics"].get(topic_name) == 2)
    client.ask("add-partitions", topic=topic_name, partitions=3)
    eventually(lambda: client.ask("topics")["topics"].get(topic_name) == 3)

    client.ask("alter-config", topic=topic_name, name="retention.ms", value="12345")
    client.produce(topic_name, KEYED)

    assert client.ask("config", topic=topic_name, name="retention.ms")["value"] == "12345"
    # AlterConfigs sets what it does not name to its default.
    others = "delete" if "incremental alter" in LIBRARIES[library].lacks else "compact"
    assert client.ask("config", topic=topic_name, name="cleanup.policy")["value"] == others
    assert sum(client.ask("ends", topic=topic_name)["ends"]) == COUNT
    client.ask("delete", topic=topic_name)
    eventually(lambda: topic_name not in client.ask("topics")["topics"])


def test_groups_are_administered(endpoint: Endpoint, topic_name: str, library: str, client: ForeignClient) -> None:
    create_topic(endpoint.server, topic_name, partitions=PARTITIONS)
    client.produce(topic_name, KEYED)
    member = ForeignMember(library, endpoint, topic_name, topic_name)
    poll_until([member], lambda read: len(read) >= COUNT)
    member.commit()

    with pytest.raises(ProgramError, match=LIBRARIES[library].errors["group not empty"]):
        client.ask("delete-group", group=topic_name)
    member.close()
    assert topic_name in client.ask("groups")["groups"]
    eventually(lambda: client.ask("group", group=topic_name)["state"] == "Empty")
    client.ask("delete-group", group=topic_name)

    assert topic_name not in client.ask("groups")["groups"]


def test_what_is_refused_has_the_libraries_own_words(endpoint: Endpoint, topic_name: str, library: str, client: ForeignClient) -> None:
    errors = LIBRARIES[library].errors
    client.ask("create", topic=topic_name, partitions=1, configs={"max.message.bytes": "1000"})
    eventually(lambda: topic_name in client.ask("topics")["topics"])

    with pytest.raises(ProgramError, match=errors["topic exists"]):
        client.ask("create", topic=topic_name, partitions=1, configs={})
    with pytest.raises(ProgramError, match=errors["unknown topic"]):
        client.ask("delete", topic=f"{topic_name}-missing")
    with pytest.raises(ProgramError, match=errors["invalid config"]):
        client.ask("alter-config", topic=topic_name, name="retention.ms", value="soon")
    with pytest.raises(ProgramError, match=errors["too large"]):
        client.produce(topic_name, [Message(0, b"k", b"v" * 5_000)])
