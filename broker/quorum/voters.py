"""The voters of the metadata quorum: replica keys, sets of voters, and the history of the set in the log (KIP-853).

Values are immutable; an operation returns a new set, or None if it does not apply. A voter of a static quorum, in
`controller.quorum.voters`, has no directory id: any replica with its node id is that voter.

Source: org.apache.kafka.raft.VoterSet, ReplicaKey, internals.VoterSetHistory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from protocol.messages.stored.voters_record import Endpoint as EndpointRecord
from protocol.messages.stored.voters_record import KRaftVersionFeature, VotersRecord
from protocol.messages.stored.voters_record import Voter as VoterRecord
from protocol.uuids import ZERO_UUID, uuid_to_text

NO_NODE = -1

Address = tuple[str, int]
Endpoints = Mapping[str, Address]
"""Host and port by listener name."""

NO_ENDPOINTS: Endpoints = {}

T = TypeVar("T")


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node and its metadata directory. ZERO_UUID: the directory is not known."""

    node_id: int
    directory_id: bytes = ZERO_UUID

    def __str__(self) -> str:
        return str(self.node_id) if self.directory_id == ZERO_UUID else f"{self.node_id}-{uuid_to_text(self.directory_id)}"


class Voter(NamedTuple):
    """One voter: its endpoints, and its supported range of kraft.version (both inclusive)."""

    key: ReplicaKey
    endpoints: Endpoints
    kraft_versions: tuple[int, int] = (0, 0)

    def is_replica(self, key: ReplicaKey) -> bool:
        """Whether the replica `key` is this voter."""
        if key.node_id != self.key.node_id:
            return False
        return self.key.directory_id in (ZERO_UUID, key.directory_id)


class VoterSet:
    """Voters by node id. Iteration is in the order of node ids, so that effects are deterministic."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.node_id: voter for voter in sorted(voters, key=lambda voter: voter.key.node_id)}

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self)})"

    @property
    def ids(self) -> list[int]:
        return list(self._voters)

    def find(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def endpoints_of(self, node_id: int) -> Endpoints:
        """Returns a voter's endpoints; none for another node."""
        voter = self._voters.get(node_id)
        return NO_ENDPOINTS if voter is None else voter.endpoints

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.is_replica(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._voters) == 1 and self.is_voter(key)

    def add(self, voter: Voter) -> VoterSet | None:
        """Returns the set with `voter`; None if it has a voter of that node id already."""
        return None if voter.key.node_id in self._voters else VoterSet([*self, voter])

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """None when there is no such voter."""
        voter = self._voters.get(key.node_id)
        return None if voter is None or voter.key != key else VoterSet(each for each in self if each is not voter)

    def update(self, voter: Voter, *, is_directory_ignored: bool = False) -> VoterSet | None:
        """Returns the set with the changed voter; None if there is no such voter. `is_directory_ignored` is for kraft.version 0, where
        voters have no directory ids."""
        old = self._voters.get(voter.key.node_id)
        if old is None or not (is_directory_ignored or old.is_replica(voter.key)):
            return None
        return VoterSet(voter if each is old else each for each in self)

    def needs_update(self, voter: Voter) -> bool:
        """Whether the set has `voter` with other endpoints or versions."""
        old = self._voters.get(voter.key.node_id)
        return old is not None and old.is_replica(voter.key) and old != voter

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            voters=[
                VoterRecord(
                    voter_id=voter.key.node_id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[EndpointRecord(name=name, host=host, port=port) for name, (host, port) in voter.endpoints.items()],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                    ),
                )
                for voter in self
            ]
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                {endpoint.name: (endpoint.host, endpoint.port) for endpoint in voter.endpoints},
                (voter.k_raft_version_feature.min_supported_version, voter.k_raft_version_feature.max_supported_version),
            )
            for voter in record.voters
        )


class LogHistory(Generic[T]):
    """The history of a value that control records change: its value at each offset. Offsets ascend."""

    __slots__ = ("_default", "_offsets", "_values")

    def __init__(self, default: T) -> None:
        self._default = default
        self._offsets: list[int] = []
        self._values: list[T] = []

    @property
    def last(self) -> T:
        return self._values[-1] if self._values else self._default

    @property
    def last_offset(self) -> int | None:
        """The offset of the record of the last value; None for the default, -1 for one from a snapshot."""
        return self._offsets[-1] if self._offsets else None

    def at(self, offset: int) -> T:
        """Returns the value after the record at `offset`."""
        place = bisect_right(self._offsets, offset)
        return self._values[place - 1] if place else self._default

    def add(self, offset: int, value: T) -> None:
        assert not self._offsets or offset > self._offsets[-1], "control records come in the log's order"
        self._offsets.append(offset)
        self._values.append(value)

    def truncate_from(self, end_offset: int) -> None:
        """Drop the values from `end_offset` on, where the log was truncated."""
        while self._offsets and self._offsets[-1] >= end_offset:
            self._offsets.pop()
            self._values.pop()

    def reset(self, value: T | None, offset: int = -1) -> None:
        """Replace the history by the value of a snapshot; None if the snapshot has no such value."""
        self._offsets.clear()
        self._values.clear()
        if value is not None:
            self.add(offset, value)
