"""The file `quorum-state`: this node's epoch, its vote, and the leader. It must never go back, so it is fsynced before it takes effect.

Version 0 is for voters named in server.properties, version 1 for those in the log (kraft.version 1, KIP-853).

Source: org.apache.kafka.raft.FileQuorumStateStore, QuorumStateData.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from broker.quorum.raft_state import Vote
from broker.quorum.voters import NO_NODE, ReplicaKey
from protocol.uuids import ZERO_UUID, uuid_from_text, uuid_to_text
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.files import read_file, replace_file

FILE_NAME = "quorum-state"
NOT_VOTED = -1
VERSION_STATIC_VOTERS = 0
VERSION_DYNAMIC_VOTERS = 1


def read_vote(directory: Path, disk: Disk = SYSTEM_DISK) -> Vote | None:
    """Returns the vote stored in `directory`; None if there is none. Raises StorageError for a file that cannot be parsed."""
    path = directory / FILE_NAME
    content = read_file(path, disk)
    if content is None:
        return None
    try:
        data = json.loads(content)
    except ValueError as error:
        raise StorageError(f"cannot read {path}: {error}", path=path) from error
    try:
        version = int(data["data_version"])
        if version not in (VERSION_STATIC_VOTERS, VERSION_DYNAMIC_VOTERS):
            raise ValueError(f"unknown version {version}")
        voted_id = int(data["votedId"])
        directory_id = uuid_from_text(data["votedDirectoryId"]) if "votedDirectoryId" in data else ZERO_UUID
        return Vote(
            epoch=max(int(data["leaderEpoch"]), 0),
            leader_id=max(int(data["leaderId"]), NO_NODE),
            voted=None if voted_id == NOT_VOTED else ReplicaKey(voted_id, directory_id),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged: {error}", path=path) from error


def write_vote(directory: Path, vote: Vote, kraft_version: int, voter_ids: Iterable[int], *, disk: Disk = SYSTEM_DISK) -> None:
    """Replace the file; it is on the disk when this returns. Raises StorageError."""
    voted = vote.voted
    data: dict[str, object] = {
        "leaderId": vote.leader_id,
        "leaderEpoch": vote.epoch,
        "votedId": NOT_VOTED if voted is None else voted.node_id,
    }
    if kraft_version == VERSION_STATIC_VOTERS:
        data = {"clusterId": "", **data, "appliedOffset": 0, "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids]}
    else:
        data["votedDirectoryId"] = uuid_to_text(ZERO_UUID if voted is None else voted.directory_id)
    data["data_version"] = VERSION_STATIC_VOTERS if kraft_version == VERSION_STATIC_VOTERS else VERSION_DYNAMIC_VOTERS
    replace_file(directory / FILE_NAME, json.dumps(data, separators=(",", ":")).encode(), disk=disk)
