"""`quorum-state` has Kafka's form, is whole or not there, and never goes back unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.quorum.quorum_state import FILE_NAME, read_vote, write_vote
from broker.quorum.raft_state import Vote
from broker.quorum.voters import ReplicaKey
from protocol.uuids import uuid_to_text
from storage.errors import StorageError

DIRECTORY_ID = bytes.fromhex("92d34381b12f403eb9b8411c07f2183a")


@pytest.mark.parametrize("vote", [Vote(3, 2, None), Vote(4, -1, ReplicaKey(1, DIRECTORY_ID)), Vote(5, 2, ReplicaKey(1, DIRECTORY_ID))])
def test_a_vote_is_read_as_it_was_written(tmp_path: Path, vote: Vote) -> None:
    write_vote(tmp_path, vote, 1, [1, 2])

    assert read_vote(tmp_path) == vote


def test_the_form_is_kafkas(tmp_path: Path) -> None:
    """The examples of FileQuorumStateStore."""
    write_vote(tmp_path, Vote(2, 1), 0, [1])
    static = json.loads((tmp_path / FILE_NAME).read_text())
    write_vote(tmp_path, Vote(2, -1, ReplicaKey(1, DIRECTORY_ID)), 1, [1])
    dynamic = json.loads((tmp_path / FILE_NAME).read_text())

    begin = {"clusterId": "", "leaderId": 1, "leaderEpoch": 2, "votedId": -1}
    assert static == {**begin, "appliedOffset": 0, "currentVoters": [{"voterId": 1}], "data_version": 0}
    assert dynamic == {"leaderId": -1, "leaderEpoch": 2, "votedId": 1, "votedDirectoryId": uuid_to_text(DIRECTORY_ID), "data_version": 1}


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    assert read_vote(tmp_path) is None


def test_every_torn_file_is_refused(tmp_path: Path) -> None:
    """To take it for none would be to vote twice in an epoch."""
    write_vote(tmp_path, Vote(2, 1), 0, [1])
    content = (tmp_path / FILE_NAME).read_bytes()

    for length in range(len(content)):
        (tmp_path / FILE_NAME).write_bytes(content[:length])
        with pytest.raises(StorageError):
            read_vote(tmp_path)


def test_a_crash_while_it_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_vote(tmp_path, Vote(2, 1), 0, [1])
    (tmp_path / f"{FILE_NAME}.tmp").write_bytes(b"{half")

    assert read_vote(tmp_path) == Vote(2, 1)


@pytest.mark.parametrize("content", ['{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}', "{}", "[]", '{"data_version":0}'])
def test_another_form_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)

    with pytest.raises(StorageError):
        read_vote(tmp_path)
