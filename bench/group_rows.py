"""Consumer groups: how long a rebalance takes when every member answers at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.clients.wire import WireClient
from bench.session import MeasurementError, Outcome, Session
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN_VERSION, SYNC_VERSION, LEAVE_VERSION, FIND_VERSION = 2, 1, 1, 2
SESSION_TIMEOUT_MS = 30_000
ASSIGNMENT = b"a" * 60  # bytes, about what one topic with a few partitions takes
COORDINATOR_TIMEOUT_S = 30.0
REBALANCES = 7

_group_names = itertools.count()


@dataclass(slots=True)
class Member:
    client: WireClient
    member_id: str = ""


class Group:
    """Members on connections of their own, driven together."""

    def __init__(self, name: str, members: list[Member]) -> None:
        self._name = name
        self._members = members

    def rebalance(self) -> float:
        """All members join and sync; returns the seconds from the first join to the last assignment."""
        started = time.perf_counter()
        answers = self._exchange([self._join(member) for member in self._members], JOIN_VERSION)
        for member, answer in zip(self._members, answers, strict=True):
            member.member_id = answer.member_id
        generation = answers[0].generation_id
        if any(answer.generation_id != generation for answer in answers):
            return self.rebalance()  # the first members were alone in a generation of their own
        leader = next(answer for answer in answers if answer.members)
        self._exchange([self._sync(member, generation, leader) for member in self._members], SYNC_VERSION)
        return time.perf_counter() - started

    def leave(self) -> None:
        self._exchange([LeaveGroupRequest(group_id=self._name, member_id=member.member_id) for member in self._members], LEAVE_VERSION)

    def _exchange(self, requests: list[Any], version: int) -> list[Any]:
        for member, request in zip(self._members, requests, strict=True):
            member.client.send(request, version)
        answers = [member.client.receive() for member in self._members]
        refused = [answer.error_code for answer in answers if answer.error_code]
        if refused:
            raise MeasurementError(f"a group member was refused: error {refused[0]}")
        return answers

    def _join(self, member: Member) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m" * 30)],
        )

    def _sync(self, member: Member, generation: int, leader: Any) -> SyncGroupRequest:
        assignments = []
        if member.member_id == leader.leader:
            assignments = [SyncGroupRequestAssignment(member_id=other.member_id, assignment=ASSIGNMENT) for other in leader.members]
        return SyncGroupRequest(group_id=self._name, generation_id=generation, member_id=member.member_id, assignments=assignments)


def rebalance(member_count: int) -> Callable[[Session], Outcome]:
    """The measurement for a group of that size: it forms, then all its members join again several times."""

    def measure(session: Session) -> Outcome:
        name = f"bench-group-{next(_group_names)}"
        with ExitStack() as stack:
            members = [Member(stack.enter_context(session.wire())) for _ in range(member_count)]
            _await_coordinator(members[0].client, name)
            group = Group(name, members)
            group.rebalance()
            times = [group.rebalance() for _ in range(REBALANCES)]
            group.leave()
        return Outcome({"rebalance_ms": 1000 * median(times), "longest_ms": 1000 * max(times)})

    return measure


def _await_coordinator(client: WireClient, name: str) -> None:
    """The first group of a broker makes the offsets topic; joins are refused until it is there."""
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    probe = Group(name + "-probe", [Member(client)])
    while time.monotonic() < deadline:
        if not client.request(FindCoordinatorRequest(key=name, key_type=0), FIND_VERSION).error_code:
            try:
                probe.rebalance()
                probe.leave()
                return
            except MeasurementError:
                pass  # the partition's groups are being loaded
        time.sleep(0.05)
    raise MeasurementError("no group coordinator")
