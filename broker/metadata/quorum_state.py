"""`quorum-state`: which epoch this node is in, whom it voted for, who leads. It must never go back, so it is synchronised first.

Version 0 is for voters named in server.properties, version 1 for those in the log (KIP-853); a file keeps the version it has.

Source: org.apache.kafka.raft.FileQuorumStateStore, QuorumStateData.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from protocol.uuids import ZERO_UUID, uuid_from_text, uuid_to_text
from storage.errors import StorageError
from storage.files import replace_file

FILE_NAME = "quorum-state"

NO_EPOCH = -1
NOT_VOTED = -1
VERSION_STATIC_VOTERS = 0
VERSION_DYNAMIC_VOTERS = 1


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The durable part of a voter's state."""

    leader_id: int = -1
    leader_epoch: int = NO_EPOCH
    voted_id: int = NOT_VOTED
    voted_directory_id: bytes = ZERO_UUID
    data_version: int = VERSION_STATIC_VOTERS


def read_quorum_state(directory: Path) -> QuorumState | None:
    """The state in `directory`, None if there is none yet. Raises StorageError for a file that cannot be understood."""
    path = directory / FILE_NAME
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    try:
        version = int(data["data_version"])
        if version not in (VERSION_STATIC_VOTERS, VERSION_DYNAMIC_VOTERS):
            raise ValueError(f"unknown version {version}")
        return QuorumState(
            leader_id=int(data["leaderId"]),
            leader_epoch=int(data["leaderEpoch"]),
            voted_id=int(data["votedId"]),
            voted_directory_id=uuid_from_text(data["votedDirectoryId"]) if "votedDirectoryId" in data else ZERO_UUID,
            data_version=version,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def write_quorum_state(directory: Path, state: QuorumState) -> None:
    """Replace the file; it is on the disk when this returns. Raises StorageError."""
    data: dict[str, object] = {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if state.data_version == VERSION_STATIC_VOTERS:
        data = {"clusterId": "", **data, "appliedOffset": 0, "currentVoters": [{"voterId": state.leader_id}]}
    else:
        data["votedDirectoryId"] = uuid_to_text(state.voted_directory_id)
    data["data_version"] = state.data_version
    replace_file(directory / FILE_NAME, json.dumps(data, separators=(",", ":")).encode())
