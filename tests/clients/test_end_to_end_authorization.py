"""Kafka's SaslPlain-, SaslScram-, Ssl- and DelegationTokenEndToEndAuthorizationTest (and …WithOwnerTest) and SaslSslConsumerTest, step by
step by Java's client, on three nodes of `secure init`, whose sessions end after 1.5 s (tests/support/java/EndToEndAuthorization.java).

Kafka's classes cannot run unmodified: they look into their brokers, and load principal builders and callback handlers into them. Here the
users' names are their principals. Not asserted is that no session expired (confirmReauthenticationMetrics): Java's client has 75 to 225 ms
for its login then, which a loaded machine may take from it. `make test` runs some tests of SCRAM; all run with BARNABAS_TEST_END_TO_END=1,
and with BARNABAS_TEST_SERVER=kafka against Apache Kafka.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import ScramMechanism

from broker.cli.authority import Authority, KeyPair
from tests.clients.java_members import CLASSIC, CONSUMER
from tests.support.kafka import java_command
from tests.support.secured_cluster import SecuredCluster

ALL = bool(os.environ.get("BARNABAS_TEST_END_TO_END"))
KIND = os.environ.get("BARNABAS_TEST_SERVER") or "barnabas"
REAUTHENTICATE_MS = 1_500
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SHA_256 = "SCRAM-SHA-256"
PASSWORD = "password of {}"
USER, SECOND, OWNER, REQUESTER, OTHER = "scram-user", "scram-user2", "owner", "requester", "other-client-principal"
PLAIN_USER, PLAIN_SECOND = "plain-user", "plain-user2"
CERTIFICATES_NAME = """#A client with special chars in CN : (, + " \\ < > ; ')"""
CERTIFICATES_PRINCIPAL = r"""User:CN=\#A client with special chars in CN : (\, \+ \" \\ \< \> \; ')"""
RUN_TIMEOUT_S = 420

AUTHORIZATION = [
    "testProduceConsumeViaAssign",
    "testProduceConsumeViaSubscribe",
    "testProduceConsumeWithWildcardAcls",
    "testProduceConsumeWithPrefixedAcls",
    "testProduceConsumeTopicAutoCreateTopicCreateAcl",
    "testNoDescribeProduceOrConsumeWithoutTopicDescribeAcl.true",
    "testNoProduceWithDescribeAcl.true",
    "testNoDescribeProduceOrConsumeWithoutTopicDescribeAcl.false",
    "testNoProduceWithDescribeAcl.false",
    "testNoConsumeWithoutDescribeAclViaAssign",
    "testNoConsumeWithoutDescribeAclViaSubscribe",
    "testNoConsumeWithDescribeAclViaAssign",
    "testNoConsumeWithDescribeAclViaSubscribe",
    "testNoGroupAcl",
]
CLASSIC_ONLY = {name for name in AUTHORIZATION if name.startswith("testNoDescribe")}
"""Kafka leaves them out for the new protocol, too."""
TWO = ["testTwoConsumersWithDifferentSaslCredentials"]
TOKEN = ["testCreateUserWithDelegationToken"]
TOKENS_OF_OTHERS = ["testCreateTokenForOtherUserFails", "testDescribeTokenForOtherUserFails", "testDescribeTokenForOtherUserPasses"]
BASE_CONSUMER = ["testSimpleConsumption", "testClusterResourceListener", "testCoordinatorFailover"]


class Case(NamedTuple):
    """A class of Kafka's: `kinds` of tests as the program knows them, and the tests' names."""

    name: str
    kinds: str
    tests: list[str]


CASES = [
    Case("SaslScramSslEndToEndAuthorizationTest", "authorization,two", AUTHORIZATION + TWO),
    Case("SaslPlainSslEndToEndAuthorizationTest", "authorization,two", AUTHORIZATION + TWO),
    Case("SslEndToEndAuthorizationTest", "authorization", AUTHORIZATION),
    Case("DelegationTokenEndToEndAuthorizationTest", "authorization,token", AUTHORIZATION + TOKEN),
    Case("DelegationTokenEndToEndAuthorizationWithOwnerTest", "authorization,token,owner", AUTHORIZATION + TOKEN + TOKENS_OF_OTHERS),
    Case("SaslSslConsumerTest", "consumer", BASE_CONSUMER),
]
USUAL = [
    "testProduceConsumeViaSubscribe",
    "testNoConsumeWithoutDescribeAclViaSubscribe",
    "testNoConsumeWithDescribeAclViaSubscribe",
    "testNoGroupAcl",
    *TWO,
]
"""What `make test` runs, of SCRAM."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("end-to-end")
    users = " ".join(f'user_{name}="{PASSWORD.format(name)}"' for name in (PLAIN_USER, PLAIN_SECOND))
    # Nodes show the certificate by which they connect, for the listener between brokers wants one.
    keys = directory / "secured" / "node-1" / "keys" / "node.pem"
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "connections.max.reauth.ms": str(REAUTHENTICATE_MS),
        "delegation.token.secret.key": "testKey",
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
        "listener.name.sasl_ssl.ssl.keystore.location": str(keys),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",  # Kafka asks for one of each
        "listener.name.ssl.ssl.client.auth": "required",
        "offsets.topic.num.partitions": "1",
        "group.min.session.timeout.ms": "100",  # as BaseConsumerTest
        "offsets.topic.replication.factor": "3",
    }
    with SecuredCluster(directory, 3, kind=KIND, settings=settings, listeners=["SSL"]) as running:
        for user in (USER, SECOND, OWNER, REQUESTER, OTHER):
            running.add_credential(user, PASSWORD.format(user), ScramMechanism.SCRAM_SHA_256)
        yield running


class Client:
    """How Java's clients connect, all with a client's certificate."""

    def __init__(self, cluster: SecuredCluster) -> None:
        folder = cluster.directory
        authority = Authority("", time.time_ns() // 1_000_000, KeyPair((folder / "ca.key").read_text(), (folder / "ca.pem").read_text()))
        pair = authority.sign(CERTIFICATES_NAME, ["localhost"], is_for_client=True)
        self._administrator = dict(cluster.administrator().java)
        self._ssl_addresses = cluster.addresses("SSL")
        self._tls = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.pair.certificate,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": pair.key,
            "ssl.keystore.certificate.chain": pair.certificate,
        }

    def administrator(self) -> dict[str, str]:
        return self._administrator | self._tls

    def by_certificate(self) -> dict[str, str]:
        return {"bootstrap.servers": self._ssl_addresses, "security.protocol": "SSL", **self._tls}

    def by_password(self, user: str, mechanism: str = SHA_256) -> dict[str, str]:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        login = f'{module} required username="{user}" password="{PASSWORD.format(user)}";'
        return self.administrator() | {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def settings_of(case: Case, client: Client) -> dict[str, str]:
    """Of the program."""
    roles, more = {"super": client.administrator()}, {"principal": f"User:{USER}"}
    if case.name.startswith("SslEndToEnd"):
        roles["client"], more["principal"] = client.by_certificate(), CERTIFICATES_PRINCIPAL
    elif case.name.startswith("SaslPlain"):
        roles |= {"client": client.by_password(PLAIN_USER, "PLAIN"), "second": client.by_password(PLAIN_SECOND, "PLAIN")}
        more["principal"] = f"User:{PLAIN_USER}"
    else:
        user = OWNER if "owner" in case.kinds else USER  # whose tokens nobody else has asked for
        names = {"client": user, "second": SECOND, "requester": REQUESTER, "other": OTHER}
        more["principal"] = f"User:{user}"
        roles |= {role: client.by_password(name) for role, name in names.items()}
    if "token" in case.kinds:
        more |= {"tokens": "requested" if "owner" in case.kinds else "own", "ownersName": OWNER if "owner" in case.kinds else USER}
        more |= {"requestersName": REQUESTER, "othersName": OTHER}
    return more | {f"{role}.{name}": value for role, properties in roles.items() for name, value in properties.items()}


def run(cluster: SecuredCluster, path: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """What became of each test: "" if it passed, else why not. A node that the program has stopped runs again at the end."""
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    outcomes: dict[str, str] = {}
    stopped = []
    with (path.parent / "errors").open("w+") as errors:
        program = subprocess.Popen(
            [*java_command("EndToEndAuthorization"), str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        assert program.stdin is not None and program.stdout is not None
        try:
            for line in program.stdout:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word == "stop":
                    stopped.append(cluster.nodes[int(rest) - 1])
                    stopped[-1].stop()
                    program.stdin.write("\n")
                    program.stdin.flush()
                elif word in ("ok", "failed"):
                    name, _, why = rest.partition(": ")
                    outcomes[name] = why
            program.wait(RUN_TIMEOUT_S)
        finally:
            program.kill()
            program.communicate()
            for node in stopped:
                node.start()
        errors.seek(0)
        assert program.returncode == 0, errors.read()
    return outcomes


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER] if ALL else [CLASSIC])
@pytest.mark.parametrize("case", CASES if ALL else CASES[:1], ids=lambda case: case.name)
def test_kafkas_steps(cluster: SecuredCluster, tmp_path: Path, case: Case, protocol: str) -> None:
    settings = settings_of(case, Client(cluster)) | {"protocol": protocol, "tests": case.kinds, "prefix": case.name[:8]}
    expected = [name for name in case.tests if protocol == CLASSIC or name not in CLASSIC_ONLY]
    if not ALL:
        expected, settings["only"] = USUAL, ",".join(USUAL)

    outcomes = run(cluster, tmp_path / "settings.properties", settings)

    assert {name: why for name, why in outcomes.items() if why} == {}
    assert sorted(outcomes) == sorted(expected)
    if KIND == "barnabas":  # Kafka's testAuthentications; and each session of 1.5 s has ended with a login that succeeded
        logs = "".join(node.log_path.read_text() for node in cluster.nodes)
        assert [line for line in logs.splitlines() if "uthentication failed" in line] == []
