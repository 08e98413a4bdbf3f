"""Source and sink where brokers want TLS, a login and rights: what lets a query in, and what ends it at once."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.security import SecurityError, read_security
from barnabas.spark.errors import BrokerError, RefusedError
from barnabas.spark.source import offsets, options
from barnabas.spark.source.planner import StreamPlanner
from barnabas.spark.source.reading import ranges_between, read_range
from broker.cli.authority import Authority
from tests.barnabas.spark.played_spark import PARTITIONS, Spark
from tests.support.secured_cluster import Endpoint, SecuredCluster

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD, WRONG = "plain-secret", "wrong-secret"
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "listener.name.ssl.ssl.client.auth": "required",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_copier="{PASSWORD}";',
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",  # Apache Kafka wants one
    "listener.name.sasl_plaintext.connections.max.reauth.ms": "3600000",
}
RIGHTS = ("--write", "copies", "--read", "copies", "--sink", "copies")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("secured"), settings=SETTINGS, listeners=("SSL", "SASL_PLAINTEXT")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.server.bootstrap})
        admin.create_topics([NewTopic("copies", PARTITIONS)])["copies"].result()
        yield cluster


@pytest.fixture(scope="module")
def copier(secured: SecuredCluster) -> Endpoint:
    return secured.add_user("copier", words=RIGHTS)


def by_plain(password: str) -> dict[str, str]:
    login = f'{PLAIN} required username="copier" password="{password}";'
    return {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": login}


def node_ids(servers: str, texts: Mapping[str, str]) -> list[int]:
    cluster = Cluster(servers, read_security(texts))
    try:
        return cluster.node_ids()
    finally:
        cluster.close()


def test_a_stream_is_written_and_read_over_tls_and_scram_with_the_least_rights(copier: Endpoint) -> None:
    spark = Spark(copier.bootstrap, "copies", copier.security("kafka."))
    spark.run(0, [["a", "b"], [], ["c"]])
    spark.task(spark.plan(), 1, 0, ["lost"])  # its driver is killed: the next one lists its transaction and aborts it
    spark.run(1, [["d"]])
    texts = {"kafka.bootstrap.servers": copier.bootstrap, "subscribe": "copies", **copier.security("kafka.")}
    source = options.read_options(texts)
    cluster = source.open()
    start = offsets.starting_offsets(cluster, source, default=offsets.EARLIEST)
    ranges = ranges_between(start, offsets.ending_offsets(cluster, source), source, cluster)

    assert spark.committed() == ["a", "b", "c", "d"]
    assert spark.open_count() == 0
    assert sorted(value.decode() for part in ranges for batch in read_range(source, part) for value in batch["value"].to_pylist()) == [
        "a", "b", "c", "d",
    ]  # fmt: skip


def test_missing_rights_end_a_query_by_name(secured: SecuredCluster) -> None:
    endpoint = secured.add_user("stranger", words=RIGHTS)
    spark = Spark(endpoint.bootstrap, "copies", {**endpoint.security("kafka."), "id": "stranger"})
    plan = spark.plan()

    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        spark.task(plan, 0, 0, ["a"])
    with pytest.raises(BrokerError, match="topic hidden: TOPIC_AUTHORIZATION_FAILED"):
        spark.cluster.topic("hidden")


def test_a_missing_right_to_the_group_is_a_warning_or_the_end(copier: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    """With maxOffsetsPerTrigger the plan of a batch depends on the group."""
    texts = {"kafka.bootstrap.servers": copier.bootstrap, "subscribe": "copies", "group": "others", **copier.security("kafka.")}
    planner = StreamPlanner(options.read_options(texts))
    planner.initial_offsets()

    planner.latest_offsets()

    assert caplog.messages == [
        "the progress of a stream is not noted in the group others: the coordinator of others: GROUP_AUTHORIZATION_FAILED"
    ]
    planner = StreamPlanner(options.read_options(texts | {"maxOffsetsPerTrigger": "1"}))
    with pytest.raises(RefusedError, match="GROUP_AUTHORIZATION_FAILED"):
        planner.latest_offsets()


def test_a_client_certificate_is_a_login(secured: SecuredCluster) -> None:
    trusted = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.authority),
    }
    with_key = trusted | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(secured.node_keys)}

    assert node_ids(secured.addresses("SSL"), with_key)
    with pytest.raises(SecurityError, match=r"no TLS with localhost:.*(certificate required|bad certificate)"):
        node_ids(secured.addresses("SSL"), trusted)


def test_plain_logs_in_and_a_session_is_renewed_before_its_end(secured: SecuredCluster) -> None:
    cluster = Cluster(secured.addresses("SASL_PLAINTEXT"), read_security(by_plain(PASSWORD)))
    (node_id,) = cluster.node_ids()
    connection = cluster.connection(node_id)
    assert not connection.has_expired
    assert cluster.connection(node_id) is connection

    connection._expires_s = time.monotonic()

    assert connection.has_expired
    assert cluster.connection(node_id) is not connection
    assert cluster.node_ids() == [node_id]
    cluster.close()


def test_a_refused_login_and_a_refused_certificate_end_a_query_at_once(secured: SecuredCluster, copier: Endpoint) -> None:
    stranger = Authority("stranger", int(time.time() * 1000)).pair.certificate
    distrusting = copier.security("kafka.") | {"kafka.ssl.truststore.certificates": stranger}
    logins = secured.addresses("SASL_PLAINTEXT")

    with pytest.raises(SecurityError, match="refuses the login: Authentication failed: Invalid username or password") as caught:
        node_ids(logins, by_plain(WRONG))
    assert WRONG not in str(caught.value)
    with pytest.raises(SecurityError, match="refuses the login: SCRAM-SHA-256 is not enabled: PLAIN, SCRAM-SHA-512 are"):
        scram = copier.java["sasl.jaas.config"]
        node_ids(logins, by_plain("") | {"kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": scram})
    with pytest.raises(SecurityError, match=r"certificate of localhost:.* is refused: .*certificate"):
        node_ids(copier.bootstrap, distrusting)
    with pytest.raises(SecurityError, match="this listener has no login by SASL"):
        node_ids(secured.server.bootstrap, by_plain(PASSWORD))


def test_a_host_s_name_is_checked_unless_the_option_is_empty(copier: Endpoint) -> None:
    texts = copier.security("kafka.")
    host, port = copier.bootstrap.split(":")

    def handshake(**more: str) -> None:
        with socket.create_connection((host, int(port))) as plain:
            read_security(texts | more).door().wrap(plain, "elsewhere.test").close()

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake()
    handshake(**{"kafka.ssl.endpoint.identification.algorithm": ""})
