"""MirrorMaker 2 in dedicated mode, at_least_once, between Apache Kafka and the broker, in both directions at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation

from tests.clients.adapters import ConfluentKafka
from tests.clients.topics import as_sent, create_topic, in_order
from tests.connect.mirrored import Mirrored, Side, Traffic, firsts
from tests.support.connect import MirrorMaker
from tests.support.fixtures import new_server
from tests.support.messages import RECENT_MS, Message
from tests.support.secured_cluster import SecuredCluster, plain

KAFKA, BARNABAS = "kafka", "barnabas"
COUNT = 300
MIDST = 100
# Apache Kafka's controller must not take its only broker for dead on a busy machine.
PATIENT = {"broker.session.timeout.ms": "60000"}
# It copies whatever there is: topics with their configs, partitions and ACLs, and groups' offsets.
RIGHTS = (
    *(f"{operation} topic *" for operation in ("READ", "WRITE", "CREATE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")),
    "READ group *",
    *(f"{operation} cluster kafka-cluster" for operation in ("DESCRIBE", "ALTER")),
)

both_directions = pytest.mark.parametrize("source", [KAFKA, BARNABAS])


@pytest.fixture(scope="module")
def _mirrored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    """With SASL_SSL, which BARNABAS_TEST_PROTOCOL asks for, both clusters are secured, and MirrorMaker is a user of each."""
    with contextlib.ExitStack() as stack:
        if request.param == "SASL_SSL":
            clusters = {kind: SecuredCluster(tmp_path_factory.mktemp(kind), kind=kind, settings=PATIENT) for kind in (KAFKA, BARNABAS)}
            endpoints = {kind: stack.enter_context(cluster).add_user("mirror", *RIGHTS) for kind, cluster in clusters.items()}
        else:
            endpoints = {kind: plain(new_server(tmp_path_factory.mktemp(kind), PATIENT, kind=kind)) for kind in (KAFKA, BARNABAS)}
        servers = {kind: endpoint.server for kind, endpoint in endpoints.items()}
        maker = MirrorMaker(tmp_path_factory.mktemp("mirror"), endpoints)
        for process in (*servers.values(), maker):
            stack.callback(process.kill)
        for server in servers.values():
            if not server.is_running:
                server.start()
        yield Mirrored(maker, {kind: Side(kind, server) for kind, server in servers.items()})


@pytest.fixture
def mirrored(_mirrored: Mirrored) -> Mirrored:
    """All three running; a test may kill each of them."""
    for process in (*(side.server for side in _mirrored.sides.values()), _mirrored.maker):
        if not process.is_running:
            process.start()
    return _mirrored


@both_directions
def test_records_are_copied_as_they_are(mirrored: Mirrored, source: str, topic_name: str) -> None:
    here, there = mirrored.directed(source)
    create_topic(here.server, topic_name, partitions=3)
    messages = [
        Message(
            number % 3, b"key %d" % number if number % 5 else None, b"value %d" % number if number % 7 else None,
            (("name", b"%d" % number), ("empty", b""), ("null", None)) if number % 2 else (), RECENT_MS + number,
        )
        for number in range(COUNT)
    ]  # fmt: skip

    ConfluentKafka().produce(here.server, topic_name, messages, compression="zstd")
    copy = f"{source}.{topic_name}"
    mirrored.wait_records(there, copy, COUNT)

    assert there.topics()[copy] == 3
    assert in_order(ConfluentKafka().consume(there.server, copy, COUNT)) == as_sent(messages)
    assert f"{there.alias}.{copy}" not in here.topics(), "else copies of copies come back"


@both_directions
def test_topic_configs_follow(mirrored: Mirrored, source: str, topic_name: str) -> None:
    here, there = mirrored.directed(source)
    copy = f"{source}.{topic_name}"
    create_topic(here.server, topic_name, config={"cleanup.policy": "compact", "retention.ms": "7200000"})
    mirrored.maker.wait_for(lambda: copy in there.topics(), "the copy")
    configs = there.configs(copy)
    assert {name: configs[name] for name in ("cleanup.policy", "retention.ms")} == {"cleanup.policy": "compact", "retention.ms": "7200000"}

    here.alter_configs(topic_name, {"cleanup.policy": "delete", "max.message.bytes": "2000000"})

    wanted = {"cleanup.policy": "delete", "max.message.bytes": "2000000", "retention.ms": "7200000"}
    mirrored.maker.wait_for(lambda: wanted.items() <= there.configs(copy).items(), "the copy's configs")


@both_directions
def test_partitions_are_added(mirrored: Mirrored, source: str, topic_name: str) -> None:
    here, there = mirrored.directed(source)
    copy = f"{source}.{topic_name}"
    create_topic(here.server, topic_name)
    mirrored.maker.wait_for(lambda: there.topics().get(copy) == 1, "the copy")

    here.add_partitions(topic_name, 3)
    mirrored.maker.wait_for(lambda: there.topics()[copy] == 3, "the copy's partitions")
    messages = [Message(partition, None, b"value %d" % number) for number in range(10) for partition in range(3)]
    ConfluentKafka().produce(here.server, topic_name, messages)
    mirrored.wait_records(there, copy, len(messages))

    assert in_order(stored for stored in ConfluentKafka().consume(there.server, copy, len(messages))).keys() == {0, 1, 2}


@both_directions
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_at_the_other_cluster(mirrored: Mirrored, source: str, protocol: str, topic_name: str) -> None:
    """A group in the midst of a topic may be sent back a little, never forward: MirrorMaker keeps fewer offsets the older they are."""
    here, there = mirrored.directed(source)
    create_topic(here.server, topic_name)
    ConfluentKafka().produce(here.server, topic_name, [Message(0, None, b"value %d" % number) for number in range(COUNT)])
    copy, group = f"{source}.{topic_name}", f"group-{topic_name}"
    mirrored.wait_records(there, copy, COUNT)

    here.read_as(group, topic_name, COUNT // 2, **{"group.protocol": protocol})
    mirrored.maker.wait_for(lambda: there.committed(group, copy) > 0, "the group's offset")
    assert there.committed(group, copy) <= COUNT // 2
    here.read_as(group, topic_name, COUNT - COUNT // 2, **{"group.protocol": protocol})
    mirrored.maker.wait_for(lambda: there.committed(group, copy) == COUNT, "the group's last offset")

    ConfluentKafka().produce(here.server, topic_name, [Message(0, None, b"next")])
    assert there.read_as(group, copy, 1, **{"group.protocol": protocol}) == [b"next"]


def test_an_application_finds_out_where_to_go_on(mirrored: Mirrored, topic_name: str) -> None:
    """By MirrorMaker's own client, which reads the checkpoints (RemoteClusterUtils)."""
    source = KAFKA
    here, there = mirrored.directed(source)
    create_topic(here.server, topic_name)
    ConfluentKafka().produce(here.server, topic_name, [Message(0, None, b"value %d" % number) for number in range(COUNT)])
    copy, group = f"{source}.{topic_name}", f"group-{topic_name}"
    here.read_as(group, topic_name, COUNT)
    mirrored.maker.wait_for(lambda: there.committed(group, copy) == COUNT, "the group's offset")

    assert mirrored.maker.view(there.server.bootstrap, source, group) == {
        "upstream_clusters": [source],
        "heartbeat_topics": ["heartbeats", f"{source}.heartbeats"],
        "checkpoint_topics": [f"{source}.checkpoints.internal"],
        "hops": 1,
        "offsets": {f"{copy}-0": COUNT},
    }


@both_directions
def test_heartbeats_go_from_cluster_to_cluster(mirrored: Mirrored, source: str) -> None:
    _, there = mirrored.directed(source)
    copy = f"{source}.heartbeats"
    mirrored.wait_records(there, copy, 2)

    (first, *_) = ConfluentKafka().consume(there.server, copy, 1)
    assert first.key is not None and [alias in first.key for alias in (KAFKA.encode(), BARNABAS.encode())] == [True, True]
    mirrored.wait_records(there, copy, there.record_count(copy) + 1)


@both_directions
def test_its_own_topics_are_compacted(mirrored: Mirrored, source: str) -> None:
    """Those of Connect and the checkpoints are where the copies are, the offset syncs where the records come from."""
    here, there = mirrored.directed(source)
    own_there = [f"mm2-configs.{source}.internal", f"mm2-offsets.{source}.internal", f"mm2-status.{source}.internal"]
    checkpoints, syncs = f"{source}.checkpoints.internal", f"mm2-offset-syncs.{there.alias}.internal"

    assert {there.configs(topic)["cleanup.policy"] for topic in (*own_there, checkpoints)} == {"compact"}
    assert here.configs(syncs)["cleanup.policy"] == "compact"


@pytest.mark.secured(asked=True)
@both_directions
def test_acls_follow(mirrored: Mirrored, source: str, topic_name: str) -> None:
    """Who may read a topic may read its copy. Rights to write are not copied."""
    here, there = mirrored.directed(source)
    create_topic(here.server, topic_name)
    here.allow("alice", topic_name, AclOperation.READ, AclOperation.WRITE)

    copy = f"{source}.{topic_name}"
    mirrored.maker.wait_for(lambda: there.rights(copy), "ACLs of the copy")

    assert there.rights(copy) == {("User:alice", AclOperation.READ)}


@pytest.mark.secured(never=True)
@both_directions
def test_acls_that_are_not_there_make_no_noise(mirrored: Mirrored, source: str) -> None:
    """SECURITY_DISABLED is what MirrorMaker understands; anything else is a stack trace a second."""
    here, there = mirrored.directed(source)
    words = f"{here.alias}->{there.alias}|MirrorSourceConnector-syncing topic ACLs"

    def lines() -> list[str]:
        return [line for line in mirrored.maker.log_since_launch().splitlines() if words in line]

    mirrored.maker.wait_for(lambda: len([line for line in lines() if "took" in line]) > 2, "ACLs were asked for")

    assert any("No ACL authorizer is configured" in line for line in lines())
    assert not [line for line in lines() if "INFO" not in line]
    assert "SecurityDisabledException" not in mirrored.maker.log_since_launch()


def test_nothing_is_lost_when_mirror_maker_is_killed(mirrored: Mirrored, topic_name: str) -> None:
    sides = mirrored.sides[KAFKA], mirrored.sides[BARNABAS]
    for side in sides:
        create_topic(side.server, topic_name)
    with Traffic(sides[0], topic_name) as from_kafka, Traffic(sides[1], topic_name) as from_barnabas:
        for source in (KAFKA, BARNABAS):
            mirrored.wait_records(mirrored.directed(source)[1], f"{source}.{topic_name}", MIDST)
        mirrored.maker.kill()
        mirrored.maker.start()

    for source, traffic in ((KAFKA, from_kafka), (BARNABAS, from_barnabas)):
        assert wait_copied(mirrored, source, topic_name, traffic) == traffic.acked


def test_nothing_is_lost_when_the_broker_is_killed(mirrored: Mirrored, topic_name: str) -> None:
    """It is the source of one direction and the target of the other."""
    sides = mirrored.sides[KAFKA], mirrored.sides[BARNABAS]
    for side in sides:
        create_topic(side.server, topic_name)
    with Traffic(sides[0], topic_name) as from_kafka, Traffic(sides[1], topic_name) as from_barnabas:
        for source in (KAFKA, BARNABAS):
            mirrored.wait_records(mirrored.directed(source)[1], f"{source}.{topic_name}", MIDST)
        mirrored.sides[BARNABAS].server.restart(hard=True)
        mirrored.wait_records(mirrored.sides[BARNABAS], f"{KAFKA}.{topic_name}", 2 * MIDST)

    for source, traffic in ((KAFKA, from_kafka), (BARNABAS, from_barnabas)):
        assert wait_copied(mirrored, source, topic_name, traffic) == traffic.acked


def wait_copied(mirrored: Mirrored, source: str, topic: str, traffic: Traffic) -> list[bytes | None]:
    """The values of the topic's copy in the order in which they came first, once it has the last record."""
    here, there = mirrored.directed(source)
    copy, last = f"{source}.{topic}", traffic.acked[-1]
    assert here.record_count(topic) == len(traffic.acked)
    mirrored.maker.wait_for(lambda: last in values(there, copy), f"the last record in {copy}")
    return firsts(values(there, copy))


def values(side: Side, topic: str) -> list[bytes | None]:
    return [stored.value for stored in ConfluentKafka().consume(side.server, topic, side.record_count(topic))]
