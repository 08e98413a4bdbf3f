"""What a node tells of itself has a few listeners, features and directories: requests of very many are refused unread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.handlers import add_raft_voter as forwarded_add_raft_voter
from broker.handlers.controller import (
    add_raft_voter,
    assign_replicas_to_dirs,
    broker_registration,
    controller_registration,
    update_raft_voter,
)
from broker.handlers.told_counts import TOLD_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest

MANY: Any = [None] * (TOLD_MAX + 1)
TOPIC = AssignReplicasToDirsRequestTopicData(partitions=[AssignReplicasToDirsRequestPartitionData()] * 1_000)
WIDE = [
    (add_raft_voter, AddRaftVoterRequest(listeners=MANY)),
    (forwarded_add_raft_voter, AddRaftVoterRequest(listeners=MANY)),
    (update_raft_voter, UpdateRaftVoterRequest(listeners=MANY)),
    (broker_registration, BrokerRegistrationRequest(listeners=MANY)),
    (broker_registration, BrokerRegistrationRequest(features=MANY)),
    (broker_registration, BrokerRegistrationRequest(log_dirs=MANY)),
    (controller_registration, ControllerRegistrationRequest(listeners=MANY)),
    (controller_registration, ControllerRegistrationRequest(features=MANY)),
    (assign_replicas_to_dirs, AssignReplicasToDirsRequest(directories=MANY)),
    (assign_replicas_to_dirs, AssignReplicasToDirsRequest(directories=[AssignReplicasToDirsRequestDirectoryData(topics=MANY * 20)])),
    (assign_replicas_to_dirs, AssignReplicasToDirsRequest(directories=[AssignReplicasToDirsRequestDirectoryData(topics=[TOPIC] * 21)])),
]


@pytest.mark.parametrize(("module", "request_"), WIDE, ids=lambda part: getattr(part, "__name__", ""))
def test_more_than_a_node_has_is_refused_before_it_is_looked_at(module: Any, request_: Any) -> None:
    nobody = SimpleNamespace()  # neither the controller nor the quorum is asked
    handle = module.build(SimpleNamespace(controller=nobody))

    with pytest.raises(KafkaError, match="are too many") as refusal:
        handle(SimpleNamespace(), request_)

    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_as_many_as_a_node_may_have_are_passed_on() -> None:
    passed: list[Any] = []
    handle = controller_registration.build(SimpleNamespace(controller=SimpleNamespace(register_controller=passed.append)))
    request = ControllerRegistrationRequest(listeners=MANY[1:], features=MANY[1:])

    handle(SimpleNamespace(), request)

    assert passed == [request]
