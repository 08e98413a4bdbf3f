"""Who may not do everything gets the same answers from Barnabas and from Apache Kafka, field by field: with no right at all, with one of
the rights that an API asks for and no other, with all but that one, and with all denied.

Both servers have StandardAuthorizer. Over plain connections everybody is User:ANONYMOUS, so rules tell clients apart by their address: the
test asks from CLIENT_HOST, and changes the rules, which let it do everything, from another one. Resources that nobody has said anything
about would be everyone's until the first rules are there; rules for somebody else end that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import CLUSTER_NAME, WILDCARD, ResourceType
from config.server import STANDARD_AUTHORIZER
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message
from tests.peers.answers import plain
from tests.peers.odd_request import committing, topic
from tests.peers.rights_requests import AT_BROKERS, AT_CONTROLLERS, GROUP, TOPIC, TRANSACTION, RightsRequest
from tests.peers.rights_settings import ALL, CLIENT_HOST, EVERYBODY, NAMES, SETTINGS, Setting, concerned, creation, rule
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess, free_port
from tests.support.wire import WireClient

ADMIN_HOST = "127.0.0.1"
ATTEMPTS_MAX = 300
ATTEMPT_INTERVAL_S = 0.1
NOT_YET = {3, 6, 14, 15, 16}

VOLATILE = {
    "cluster_id", "topic_id", "producer_id", "timestamp", "log_append_time_ms", "session_id", "member_id", "leader", "port", "log_dir",
    "usable_bytes", "total_bytes", "throttle_time_ms", "last_timestamp",
}  # fmt: skip

OTHER_WORDS = {"RemoveRaftVoter"}

REQUESTS = {"broker": AT_BROKERS, "controller": AT_CONTROLLERS}


class Side:
    """One of the servers; not every one has a controller listener."""

    def __init__(self, server: ServerProcess, *, has_controller_listener: bool = True) -> None:
        self.server = server
        self.controller_port = free_port() if has_controller_listener else 0
        self.topic_id = bytes(16)

    def ask(self, message: Any, version: int, *, host: str = ADMIN_HOST, at: str = "broker") -> Any:
        port = self.server.port if at == "broker" else self.controller_port
        with WireClient(self.server.host, port, source_host=host) as client:
            return client.request(message, version)

    def until_ready(self, message: Any, version: int) -> Any:
        for _ in range(ATTEMPTS_MAX):
            answer = self.ask(message, version)
            if not _error_codes(answer) & NOT_YET:
                return answer
            time.sleep(ATTEMPT_INTERVAL_S)
        raise AssertionError(f"{self.server.name} is not ready: {answer}")

    def prepare(self) -> None:
        self.until_ready(CreateTopicsRequest(topics=[topic(TOPIC)]), 7)
        self.until_ready(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        self.until_ready(FindCoordinatorRequest(coordinator_keys=[TRANSACTION], key_type=1), 4)
        self.until_ready(committing(GROUP, TOPIC, (0, 3)), 9)
        told = self.until_ready(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 10)
        self.topic_id = told.topics[0].topic_id
        of_admin = [rule(kind, WILDCARD if kind is not ResourceType.CLUSTER else CLUSTER_NAME, ALL, host=ADMIN_HOST) for kind in NAMES]
        of_nobody = [acl._replace(principal="User:nobody") for acl in of_admin]
        self.create([*of_admin, *of_nobody])
        self._wait_for(ADMIN_HOST, of_admin)

    def create(self, acls: list[Acl]) -> None:
        answer = self.ask(CreateAclsRequest(creations=[creation(acl) for acl in acls]), 3)
        assert not _error_codes(answer) - {0}, answer

    def apply(self, setting: Setting) -> None:
        """Give the client these rights and no others."""
        every = DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=EVERYBODY, host_filter=CLIENT_HOST,
            operation=1, permission_type=1,
        )  # fmt: skip
        assert not _error_codes(self.ask(DeleteAclsRequest(filters=[every]), 3)) - {0}
        acls = setting.acls()
        if acls:
            self.create(acls)
        self._wait_for(CLIENT_HOST, acls)

    def _wait_for(self, host: str, acls: list[Acl]) -> None:
        """Until broker and controller know these rules of that host and no others."""
        asked = DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=EVERYBODY, host_filter=host,
            operation=1, permission_type=1,
        )  # fmt: skip
        for at in ("broker", "controller") if self.controller_port else ("broker",):
            for _ in range(ATTEMPTS_MAX):
                told = {
                    (each.resource_type, each.resource_name, acl.operation, acl.permission_type)
                    for each in self.ask(asked, 3, at=at).resources
                    for acl in each.acls
                }
                if told == {(acl.resource_type, acl.resource_name, acl.operation, acl.permission_type) for acl in acls}:
                    break
                time.sleep(ATTEMPT_INTERVAL_S)
            else:
                raise AssertionError(f"{self.server.name} has other rules at its {at}: {told}")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    """Apache Kafka and Barnabas, twice: alone it has no controller listener, and asks its controller directly. All have the same topic and
    the same rules."""
    kafka_jars()
    root: Path = tmp_path_factory.mktemp("rights")
    made = [
        Side(KafkaServer(root / "kafka")),
        Side(BrokerProcess(root / "barnabas")),
        Side(BrokerProcess(root / "alone"), has_controller_listener=False),
    ]
    try:
        for side in made:
            server, port = side.server, side.controller_port
            server.settings |= {
                "node.id": "1",
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "allow.everyone.if.no.acl.found": "true",
            }
            if port:
                server.settings |= {
                    "process.roles": "broker,controller",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": f"1@{server.host}:{port}",
                    "listeners": f"PLAINTEXT://{server.host}:{server.port},CONTROLLER://{server.host}:{port}",
                }
            server.start()
            side.prepare()
        yield made
    finally:
        for side in made:
            side.server.end()


@pytest.mark.parametrize(
    ("setting", "at"),
    [pytest.param(setting, at, id=f"{setting}-{at}") for setting in SETTINGS for at in REQUESTS if concerned(setting, REQUESTS[at])],
)
def test_a_client_is_answered_as_kafka_answers_it(sides: list[Side], setting: Setting, at: str) -> None:
    requests = concerned(setting, REQUESTS[at])
    asked = [side for side in sides if at == "broker" or side.controller_port]
    for side in asked:
        side.apply(setting)

    differing = []
    for request in requests:
        theirs, *others = (_answer(side, request, at) for side in asked)
        for ours in others:
            differing += [f"{request.name}: {difference}" for difference in _differences(theirs, ours)]

    assert not differing, "\n".join(differing)


def _answer(side: Side, request: RightsRequest, at: str) -> Any:
    """The decoded answer as dicts and lists, or "closed"."""
    for _ in range(ATTEMPTS_MAX):
        try:
            answer = side.ask(request.make(side.topic_id), request.version, host=CLIENT_HOST, at=at)
        except (EOFError, ConnectionError):
            return "closed"
        if not _error_codes(answer) & {14, 15}:
            break
        time.sleep(ATTEMPT_INTERVAL_S)
    left_out = VOLATILE | {"error_message"} if request.api in OTHER_WORDS else VOLATILE
    return _without_words(plain(answer, left_out))


def _without_words(value: Any) -> Any:
    """Kafka's message of a denial on the cluster has all of its request in it, or is none, by the API."""
    if isinstance(value, dict):
        is_denied = value.get("error_code") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return {name: _without_words(each) for name, each in value.items() if not (is_denied and name == "error_message")}
    if isinstance(value, list):
        return [_without_words(each) for each in value]
    return value


def _differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs:
            yield from _differences(theirs[name], ours[name], f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for place, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(*pair, f"{path}[{place}]")
    elif theirs != ours:
        yield f"{path.strip('.')}: {theirs!r} in Kafka, here {ours!r}"


def _error_codes(value: Any) -> set[int]:
    if isinstance(value, Message):
        codes = {getattr(value, "error_code", 0)}
        return codes.union(*(_error_codes(getattr(value, name)) for name in value.__slots__))
    return set[int]().union(*map(_error_codes, value)) if isinstance(value, list) else set()
