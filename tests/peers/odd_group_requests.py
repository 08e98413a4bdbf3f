"""Odd but legal requests about groups. See odd_requests.py."""

from __future__ import annotations

from typing import Any

from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.peers.odd_request import UNKNOWN_ID, Row, committing


def commit_all(name: str, *topics: OffsetCommitRequestTopic, version: int = 8) -> tuple[str, Any, int]:
    return name, OffsetCommitRequest(group_id="odd", topics=list(topics)), version


def joining(**fields: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    given = {"group_id": "joined", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    return JoinGroupRequest(**{**given, "protocols": protocols, **fields})


GROUPS: list[Row] = [
    commit_all("commit nothing"),
    commit_all("commit a topic without partitions", OffsetCommitRequestTopic(name="one", partitions=[])),
    commit_all("commit an unknown topic without partitions", OffsetCommitRequestTopic(name="missing", partitions=[])),
    ("commit for an unknown topic", committing("odd", "missing", (0, 1)), 8),
    ("commit for a bad topic name", committing("odd", "a/b", (0, 1)), 8),
    ("commit for unknown partitions", committing("odd", "one", (-1, 1), (9, 1)), 8),
    ("commit, one known and one not", committing("odd", "one", (0, 1), (9, 1)), 8),
    ("commit a partition twice", committing("odd", "one", (0, 1), (0, 2)), 8),
    commit_all("commit a topic twice", *committing("odd", "one", (0, 7)).topics * 2),
    commit_all(
        "commit known and unknown topics", *(committing("odd", name, (0, 7)).topics[0] for name in ("missing", "one", "three", "gone"))
    ),
    ("commit a negative offset", committing("odd", "one", (0, -5)), 8),
    ("commit epoch -2", committing("odd", "one", (0, 5), epoch=-2), 8),
    ("fetch what was committed with epoch -2", OffsetFetchRequest(group_id="odd", topics=None), 7),
    ("commit null metadata", committing("odd", "one", (0, 5), metadata=None), 8),
    ("commit long metadata", committing("odd", "one", (0, 5), metadata="m" * 5000), 8),
    ("commit in generation 3", committing("odd", "one", (0, 5), generation_id_or_member_epoch=3), 8),
    ("commit in generation 3 v9", committing("none", "one", (0, 5), generation_id_or_member_epoch=3), 9),
    ("commit in generation 3 of no group", committing("none", "one", (0, 5), generation_id_or_member_epoch=3), 8),
    ("commit in generation -2", committing("odd", "one", (0, 5), generation_id_or_member_epoch=-2), 8),
    ("commit as a member", committing("odd", "one", (0, 5), member_id="x"), 8),
    ("commit as an instance", committing("odd", "one", (0, 5), group_instance_id="x"), 8),
    ("commit for no group", committing("", "one", (0, 5)), 8),
    ("commit with retention -2", committing("odd", "one", (0, 5), retention_time_ms=-2), 4),
    ("fetch all", OffsetFetchRequest(group_id="committed", topics=None), 7),
    ("fetch nothing", OffsetFetchRequest(group_id="committed", topics=[]), 7),
    ("fetch a topic without partitions", OffsetFetchRequest(group_id="committed", topics=[OffsetFetchRequestTopic(name="one")]), 7),
    (
        "fetch unknown",
        OffsetFetchRequest(
            group_id="committed",
            topics=[
                OffsetFetchRequestTopic(name="one", partition_indexes=[0, 0, -1, 9]),
                OffsetFetchRequestTopic(name="one", partition_indexes=[0]),
                OffsetFetchRequestTopic(name="a/b", partition_indexes=[0]),
            ],
        ),
        7,
    ),
    ("fetch of no group", OffsetFetchRequest(group_id="", topics=None), 7),
    ("fetch of an unknown group", OffsetFetchRequest(group_id="none", topics=None), 7),
    ("fetch v1", OffsetFetchRequest(group_id="committed", topics=[OffsetFetchRequestTopic(name="one", partition_indexes=[0])]), 1),
    ("fetch v8 no groups", OffsetFetchRequest(groups=[]), 8),
    (
        "fetch v8 a group twice",
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="committed", topics=None),
                OffsetFetchRequestGroup(group_id="committed", topics=None),
                OffsetFetchRequestGroup(group_id="none", topics=None),
                OffsetFetchRequestGroup(group_id="committed", topics=[OffsetFetchRequestTopics(name="one", partition_indexes=[0])]),
            ]
        ),
        8,
    ),
    (
        "fetch v9 as a member",
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="committed", member_id="x", member_epoch=3, topics=None)]),
        9,
    ),
    (
        "fetch v9 with a negative epoch",
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="committed", member_id="", member_epoch=-7, topics=None)]),
        9,
    ),
    ("commit by an unknown id", committing("odd", "", (0, 1), (1, 1)), 10),
    ("commit nothing v10", OffsetCommitRequest(group_id="odd", topics=[]), 10),
    (
        "fetch by an unknown id",
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="committed", topics=[OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0])])
            ]
        ),
        10,
    ),
    ("fetch all v10", OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="committed", topics=None)]), 10),
    ("describe no groups", DescribeGroupsRequest(groups=[]), 5),
    ("describe a group twice", DescribeGroupsRequest(groups=["committed", "committed", "none", "none", ""]), 5),
    ("describe groups v6", DescribeGroupsRequest(groups=["committed", "none", ""], include_authorized_operations=True), 6),
    ("list groups", ListGroupsRequest(), 5),
    ("list groups of unknown states", ListGroupsRequest(states_filter=["odd", "", "EMPTY"]), 5),
    ("list groups of an unknown state", ListGroupsRequest(states_filter=["odd"]), 5),
    ("list groups of unknown types", ListGroupsRequest(types_filter=["odd"]), 5),
    ("list groups of a type in capitals", ListGroupsRequest(types_filter=["CLASSIC", "consumer"]), 5),
    ("heartbeat of no group", HeartbeatRequest(group_id="none", generation_id=1, member_id="x"), 4),
    ("heartbeat of group ''", HeartbeatRequest(group_id="", generation_id=1, member_id="x"), 4),
    ("heartbeat to a group without members", HeartbeatRequest(group_id="committed", generation_id=-5, member_id=""), 4),
    ("leave no group", LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="x")]), 4),
    ("leave, nobody", LeaveGroupRequest(group_id="committed", members=[]), 4),
    (
        "leave, unknown members",
        LeaveGroupRequest(
            group_id="committed",
            members=[MemberIdentity(member_id="x"), MemberIdentity(member_id="x"), MemberIdentity(member_id="", group_instance_id="i")],
        ),
        4,
    ),
    ("leave group ''", LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="x")]), 4),
    ("leave v1", LeaveGroupRequest(group_id="none", member_id="x"), 1),
    (
        "sync no group",
        SyncGroupRequest(group_id="none", generation_id=1, member_id="x", protocol_type="consumer", protocol_name="range"),
        5,
    ),
    ("sync without protocol", SyncGroupRequest(group_id="none", generation_id=1, member_id="x"), 5),
    ("sync group ''", SyncGroupRequest(group_id="", generation_id=1, member_id="x"), 3),
    (
        "sync twice the same member",
        SyncGroupRequest(group_id="committed", generation_id=0, member_id="x", assignments=[SyncGroupRequestAssignment(member_id="x")] * 2),
        3,
    ),
    ("join group ''", joining(group_id=""), 5),
    ("join with a short session", joining(session_timeout_ms=1), 5),
    ("join with a negative session", joining(session_timeout_ms=-1), 5),
    ("join without protocols", joining(protocols=[]), 5),
    ("join with protocol type ''", joining(protocol_type=""), 5),
    ("join with an unknown member id", joining(member_id="x"), 5),
    ("join an unknown group with a member id", joining(group_id="none", member_id="x"), 3),
    ("join a group without members, with a member id", joining(group_id="committed", member_id="x"), 5),
    ("join with instance id ''", joining(group_id="empty instance id", group_instance_id=""), 5),
    ("join with a bad instance id", joining(group_id="bad instance id", group_instance_id="a/b"), 5),
    ("join with rebalance timeout -1", joining(rebalance_timeout_ms=-1, group_id="negative"), 3),
]


def deleting(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes])
            for name, indexes in topics
        ],
    )


DELETIONS: list[Row] = [
    ("a group that offsets are deleted of", committing("deleted", "three", (0, 1), (1, 1), (2, 1)), 8),
    ("offsets of nothing", deleting("deleted"), 0),
    ("offsets of a topic without partitions", deleting("deleted", ("three", [])), 0),
    ("offsets of an unknown topic without partitions", deleting("deleted", ("missing", [])), 0),
    ("an offset", deleting("deleted", ("three", [0])), 0),
    ("an offset again", deleting("deleted", ("three", [0])), 0),
    ("an offset twice", deleting("deleted", ("three", [1, 1])), 0),
    ("offsets of a topic twice", deleting("deleted", ("three", [1]), ("three", [1])), 0),
    ("offsets of a topic twice, one unknown", deleting("deleted", ("three", [1, 9]), ("three", [1, -1])), 0),
    ("offsets known and unknown", deleting("deleted", ("three", [1, 9]), ("missing", [0]), ("a/b", [0]), ("", [])), 0),
    ("offsets of no group", deleting("none", ("three", [0]), ("missing", [0])), 0),
    ("offsets of group ''", deleting("", ("three", [0])), 0),
    ("what is left", OffsetFetchRequest(group_id="deleted", topics=None), 7),
    ("no groups", DeleteGroupsRequest(groups_names=[]), 2),
    ("groups v0", DeleteGroupsRequest(groups_names=["none", "", "none"]), 0),
    ("groups v1", DeleteGroupsRequest(groups_names=["none"]), 1),
    ("groups twice", DeleteGroupsRequest(groups_names=["deleted", "none", "deleted"]), 2),
    ("a group again", DeleteGroupsRequest(groups_names=["deleted"]), 2),
    ("what is left of the group", DescribeGroupsRequest(groups=["deleted"]), 6),
]

for key_type in (0, 2, 3, -1):
    GROUPS.append(
        (f"find coordinators of type {key_type}", FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "a", "", "ä"]), 4)
    )
    GROUPS.append((f"find a coordinator of type {key_type}", FindCoordinatorRequest(key_type=key_type, key="a"), 3))
GROUPS.append(("find coordinators of type 2 v6", FindCoordinatorRequest(key_type=2, coordinator_keys=["a", "g:t:1"]), 6))
GROUPS.append(("find no coordinators", FindCoordinatorRequest(key_type=0, coordinator_keys=[]), 4))
GROUPS.append(("find a coordinator v0", FindCoordinatorRequest(key="a"), 0))
