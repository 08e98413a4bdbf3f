"""Classic consumer groups: the time of a rebalance whose members all respond at once."""

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
FORM_PAUSE_S = 0.2
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
        self._round = 0

    def form(self) -> None:
        """The first member makes the group. It joins again after the others, because they would wait for it otherwise."""
        Group(self._name, self._members[:1]).rebalance()
        self.rebalance(pause_s=FORM_PAUSE_S)

    def rebalance(self, pause_s: float = 0.0) -> float:
        """All members join and sync: the seconds from the first join to the last assignment. `pause_s` precedes the last join."""
        self._round += 1
        started = time.perf_counter()
        answers = self._exchange([self._join(member) for member in self._members], JOIN_VERSION, pause_s)
        for member, answer in zip(self._members, answers, strict=True):
            member.member_id = answer.member_id
        generations = {answer.generation_id for answer in answers}
        if len(generations) != 1:
            raise MeasurementError(f"the members are in generations {sorted(generations)}")
        leader = next(answer for answer in answers if answer.members)
        self._exchange([self._sync(member, leader.generation_id, leader) for member in self._members], SYNC_VERSION)
        return time.perf_counter() - started

    def leave(self) -> None:
        self._exchange([LeaveGroupRequest(group_id=self._name, member_id=member.member_id) for member in self._members], LEAVE_VERSION)

    def _exchange(self, requests: list[Any], version: int, pause_s: float = 0.0) -> list[Any]:
        """One request of each member, the first member's last."""
        for member, request in reversed(list(zip(self._members, requests, strict=True))):
            if member is self._members[0] and pause_s:
                time.sleep(pause_s)
            member.client.send(request, version)
        answers = [member.client.receive() for member in self._members]
        refused = [answer.error_code for answer in answers if answer.error_code]
        if refused:
            raise MeasurementError(f"a group member was refused: error {refused[0]}")
        return answers

    def _join(self, member: Member) -> JoinGroupRequest:
        """With new metadata in each round: a follower that joins with the same metadata gets its present generation back."""
        return JoinGroupRequest(
            group_id=self._name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self._round.to_bytes(30))],
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
            group.form()
            times = [group.rebalance() for _ in range(REBALANCES)]
            group.leave()
        return Outcome({"rebalance_ms": 1000 * median(times), "longest_ms": 1000 * max(times)})

    return measure


def _await_coordinator(client: WireClient, name: str) -> None:
    """The first group of a broker makes it create the offsets topic. Joins are refused until that exists."""
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    attempts = itertools.count()
    while time.monotonic() < deadline:
        if not client.request(FindCoordinatorRequest(key=name, key_type=0), FIND_VERSION).error_code:
            try:
                # A new group name each time, because a refused member may still count as one.
                probe = Group(f"{name}-probe-{next(attempts)}", [Member(client)])
                probe.rebalance()
                probe.leave()
                return
            except MeasurementError:
                pass  # the partition's groups are being loaded
        time.sleep(0.05)
    raise MeasurementError("no group coordinator")
