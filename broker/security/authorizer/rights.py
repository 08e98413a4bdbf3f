"""The rights that each API needs, for each kind of listener: one line an API. Dispatch serves no API without a line.

- `cluster`: one of these operations on the cluster is needed for the whole request, else it is CLUSTER_AUTHORIZATION_FAILED. Nothing of
  the request is looked at before. The denial of the last one is logged.
- `named`: what the API's handler, or the controller, asks about the resources that the request names, by `RequestContext.access`. A right
  has the error of what is denied, or NOBODY_IS_TOLD: that is left out of the answer, or less is done, and it may be no line of the log.
- `checked_by`: who checks `cluster`. What a broker forwards is checked by the active controller, with the client's principal and address,
  also in the process of the broker: broker/controller/authorized_controller.py is the only way to it.

Source: KafkaApis, ControllerApis, AclApis, ConfigHelper, ConfigAdminManager, DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode

NOBODY_IS_TOLD = ErrorCode.NONE

_ALTER = AclOperation.ALTER
_ALTER_CONFIGS = AclOperation.ALTER_CONFIGS
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_CREATE = AclOperation.CREATE
_DELETE = AclOperation.DELETE
_DESCRIBE = AclOperation.DESCRIBE
_DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS
_READ = AclOperation.READ
_WRITE = AclOperation.WRITE


class Checker(Enum):
    """Who checks a right on the cluster alone."""

    DISPATCH = "dispatch"
    CONTROLLER = "controller"


class Right(NamedTuple):
    """An operation on a resource that the request names, and the error where it is denied. Not `is_logged`: the denial is a line of
    TRACE."""

    operation: AclOperation
    resource: ResourceType
    error: ErrorCode
    is_logged: bool = True


class Rights(NamedTuple):
    """One line of the table; see the module's docstring."""

    cluster: tuple[AclOperation, ...] = ()
    named: tuple[Right, ...] = ()
    checked_by: Checker = Checker.DISPATCH

    def find(self, operation: int, resource: int) -> Right | None:
        """The right of this operation on resources of this type, if the line has it."""
        return next((right for right in self.named if right.operation == operation and right.resource == resource), None)


def _topic(operation: AclOperation, error: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED, *, is_logged: bool = True) -> Right:
    return Right(operation, ResourceType.TOPIC, error, is_logged)


def _group(operation: AclOperation, error: ErrorCode = ErrorCode.GROUP_AUTHORIZATION_FAILED, *, is_logged: bool = True) -> Right:
    return Right(operation, ResourceType.GROUP, error, is_logged)


def _transaction(operation: AclOperation, error: ErrorCode = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) -> Right:
    return Right(operation, ResourceType.TRANSACTIONAL_ID, error)


def _cluster(operation: AclOperation, error: ErrorCode = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, *, is_logged: bool = True) -> Right:
    """A right on the cluster that counts for a part of the request, or in place of another right."""
    return Right(operation, ResourceType.CLUSTER, error, is_logged)


def _needs(*operations: AclOperation) -> Rights:
    return Rights(operations)


def _asks(*named: Right) -> Rights:
    return Rights((), named)


def _controller_needs(operation: AclOperation) -> Rights:
    return Rights((operation,), (), Checker.CONTROLLER)


def _controller_asks(*named: Right) -> Rights:
    return Rights((), named, Checker.CONTROLLER)


NOTHING = Rights()
FORWARDED = Rights((), (), Checker.CONTROLLER)
"""On a broker: the line of CONTROLLER_RIGHTS counts."""

_NEW_TOKEN = Right(AclOperation.CREATE_TOKENS, ResourceType.USER, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
_CONFIGS = (_cluster(_DESCRIBE_CONFIGS), _topic(_DESCRIBE_CONFIGS), _group(_DESCRIBE_CONFIGS))

CLIENT_RIGHTS: dict[str, Rights] = {
    "Produce": _asks(_transaction(_WRITE), _topic(_WRITE)),
    "Fetch": _asks(_topic(_READ), _cluster(_CLUSTER_ACTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)),  # of a replica
    "ListOffsets": _asks(_topic(_DESCRIBE)),
    # Of all topics, those that the client may not describe are left out, and not logged. Authorized operations are not logged either.
    "Metadata": _asks(
        _topic(_DESCRIBE), _cluster(_CREATE, NOBODY_IS_TOLD, is_logged=False), _topic(_CREATE), _cluster(_DESCRIBE, NOBODY_IS_TOLD)
    ),
    "OffsetCommit": _asks(_group(_READ), _topic(_READ)),
    "OffsetFetch": _asks(_group(_DESCRIBE), _topic(_DESCRIBE)),  # of all topics of a group, others are left out
    "FindCoordinator": _asks(_group(_DESCRIBE), _transaction(_DESCRIBE)),
    "JoinGroup": _asks(_group(_READ)),
    "Heartbeat": _asks(_group(_READ)),
    "LeaveGroup": _asks(_group(_READ)),
    "SyncGroup": _asks(_group(_READ)),
    "DescribeGroups": _asks(_group(_DESCRIBE)),
    "ListGroups": _asks(_cluster(_DESCRIBE, NOBODY_IS_TOLD, is_logged=False), _group(_DESCRIBE, NOBODY_IS_TOLD, is_logged=False)),
    "SaslHandshake": NOTHING,
    "ApiVersions": NOTHING,
    "CreateTopics": FORWARDED,
    "DeleteTopics": FORWARDED,
    "DeleteRecords": _asks(_topic(_DELETE)),
    # Without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.
    "InitProducerId": _asks(
        _transaction(_WRITE),
        _transaction(AclOperation.TWO_PHASE_COMMIT),
        _cluster(AclOperation.IDEMPOTENT_WRITE, is_logged=False),
        _topic(_WRITE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, is_logged=False),
    ),
    "OffsetForLeaderEpoch": _asks(_cluster(_CLUSTER_ACTION, NOBODY_IS_TOLD, is_logged=False), _topic(_DESCRIBE)),
    "AddPartitionsToTxn": _asks(_cluster(_CLUSTER_ACTION), _transaction(_WRITE), _topic(_WRITE)),  # of brokers, from v4 on; of clients
    "AddOffsetsToTxn": _asks(_transaction(_WRITE), _group(_READ)),
    "EndTxn": _asks(_transaction(_WRITE)),
    "WriteTxnMarkers": _needs(_ALTER, _CLUSTER_ACTION),
    "TxnOffsetCommit": _asks(_transaction(_WRITE), _group(_READ), _topic(_READ)),
    "DescribeAcls": _needs(_DESCRIBE),
    "CreateAcls": FORWARDED,
    "DeleteAcls": FORWARDED,
    "DescribeConfigs": _asks(*_CONFIGS),
    "AlterConfigs": FORWARDED,
    "AlterReplicaLogDirs": _needs(_ALTER),
    "DescribeLogDirs": _needs(_DESCRIBE),
    "SaslAuthenticate": NOTHING,
    "CreatePartitions": FORWARDED,
    "CreateDelegationToken": Rights((), (_NEW_TOKEN,), Checker.CONTROLLER),
    "RenewDelegationToken": FORWARDED,
    "ExpireDelegationToken": FORWARDED,
    "DescribeDelegationToken": _asks(
        Right(_DESCRIBE, ResourceType.DELEGATION_TOKEN, NOBODY_IS_TOLD),
        Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, NOBODY_IS_TOLD),
    ),
    "DeleteGroups": _asks(_group(_DELETE)),
    "ElectLeaders": FORWARDED,
    "IncrementalAlterConfigs": Rights((), (_cluster(_ALTER_CONFIGS),), Checker.CONTROLLER),  # of loggers; the rest is forwarded
    "AlterPartitionReassignments": FORWARDED,
    "ListPartitionReassignments": FORWARDED,
    "OffsetDelete": _asks(_group(_DELETE), _topic(_READ)),
    "DescribeClientQuotas": _needs(_DESCRIBE_CONFIGS),
    "AlterClientQuotas": FORWARDED,
    "DescribeUserScramCredentials": _needs(_DESCRIBE),
    "AlterUserScramCredentials": FORWARDED,
    "DescribeQuorum": FORWARDED,
    "UpdateFeatures": FORWARDED,
    "DescribeCluster": _asks(_cluster(_DESCRIBE, NOBODY_IS_TOLD)),  # for authorized operations
    "DescribeProducers": _asks(_topic(_READ)),
    "UnregisterBroker": FORWARDED,
    "DescribeTransactions": _asks(_transaction(_DESCRIBE), _topic(_DESCRIBE, NOBODY_IS_TOLD)),
    "ListTransactions": _asks(_transaction(_DESCRIBE, NOBODY_IS_TOLD)),
    "ConsumerGroupHeartbeat": _asks(_group(_READ), _topic(_DESCRIBE)),  # topics of a regular expression are left out, and not logged
    "ConsumerGroupDescribe": _asks(_group(_DESCRIBE), _topic(_DESCRIBE)),
    "GetTelemetrySubscriptions": NOTHING,
    "PushTelemetry": NOTHING,
    "ListConfigResources": _needs(_DESCRIBE_CONFIGS),
    "DescribeTopicPartitions": _asks(_topic(_DESCRIBE)),  # of all topics, others are left out
    "AddRaftVoter": FORWARDED,
    "RemoveRaftVoter": FORWARDED,
}
"""By the API's name; on listeners of clients, of which brokers are some of each other."""

CONTROLLER_RIGHTS: dict[str, Rights] = {
    "Fetch": _needs(_CLUSTER_ACTION),
    "SaslHandshake": NOTHING,
    "ApiVersions": NOTHING,
    "CreateTopics": _controller_asks(
        _cluster(_CREATE, NOBODY_IS_TOLD, is_logged=False), _topic(_CREATE), _topic(_DESCRIBE_CONFIGS, is_logged=False)
    ),
    "DeleteTopics": _controller_asks(_cluster(_DELETE, NOBODY_IS_TOLD, is_logged=False), _topic(_DESCRIBE), _topic(_DELETE)),
    "DescribeAcls": _needs(_DESCRIBE),
    "CreateAcls": _controller_needs(_ALTER),
    "DeleteAcls": _controller_needs(_ALTER),
    "DescribeConfigs": _asks(*_CONFIGS),
    "AlterConfigs": _controller_asks(_cluster(_ALTER_CONFIGS), _topic(_ALTER_CONFIGS), _group(_ALTER_CONFIGS)),
    "SaslAuthenticate": NOTHING,
    "CreatePartitions": _controller_asks(_topic(_ALTER)),
    "CreateDelegationToken": _controller_asks(_NEW_TOKEN),
    "RenewDelegationToken": NOTHING,
    "ExpireDelegationToken": NOTHING,
    "ElectLeaders": _controller_needs(_ALTER),
    "IncrementalAlterConfigs": _controller_asks(
        _cluster(_ALTER_CONFIGS), _topic(_ALTER_CONFIGS), _group(_ALTER_CONFIGS), _cluster(_CLUSTER_ACTION)
    ),
    "AlterPartitionReassignments": _controller_needs(_ALTER),
    "ListPartitionReassignments": _controller_needs(_DESCRIBE),
    "AlterClientQuotas": _controller_needs(_ALTER_CONFIGS),
    "AlterUserScramCredentials": _controller_needs(_ALTER),
    "Vote": _needs(_CLUSTER_ACTION),
    "BeginQuorumEpoch": _needs(_CLUSTER_ACTION),
    "EndQuorumEpoch": _needs(_CLUSTER_ACTION),
    "DescribeQuorum": _needs(_DESCRIBE),
    "AlterPartition": _needs(_CLUSTER_ACTION),
    "UpdateFeatures": _controller_needs(_ALTER),
    "Envelope": _needs(_CLUSTER_ACTION),
    "FetchSnapshot": _needs(_CLUSTER_ACTION),
    "DescribeCluster": Rights((_ALTER,), (_cluster(_DESCRIBE, NOBODY_IS_TOLD),)),
    "BrokerRegistration": _needs(_CLUSTER_ACTION),
    "BrokerHeartbeat": _needs(_CLUSTER_ACTION),
    "UnregisterBroker": _controller_needs(_ALTER),
    "AllocateProducerIds": _needs(_CLUSTER_ACTION),
    "ControllerRegistration": _needs(_CLUSTER_ACTION),
    "AssignReplicasToDirs": _needs(_CLUSTER_ACTION),
    "AddRaftVoter": _needs(_ALTER),
    "RemoveRaftVoter": _needs(_ALTER),
    "UpdateRaftVoter": _needs(_CLUSTER_ACTION),
}
"""By the API's name; on listeners of controllers, and for what brokers forward to the active one."""
