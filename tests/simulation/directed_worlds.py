"""Clusters in which one rare course of events is brought about on purpose: random faults reach it in too few seeds.

The brokers, their clients and all checks are those of tests/simulation/cluster_world.py; a script takes the place of the drawn faults,
and a seed still decides everything else. A script that does not find what it needs gives up after some attempts; the outcome covers
`REACHED_THE_END` when it came to its end.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

from broker.quorum.raft_state import RaftState
from broker.replication.partition import Partition
from tests.simulation.admin import Admin
from tests.simulation.cluster_nemesis import PORT, ClusterNemesis
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.fencing_watch import FENCED_MAX_S
from tests.simulation.node import Node
from tests.simulation.shapes import ONE_CONTROLLER_APART, ONE_VOTER_OF_TWO, Shape, combined
from tests.simulation.world import DATA_DIR, PLAIN

ATTEMPTS_MAX = 10
POLL_S = 0.000_5
FETCH_MAX_S = 2.0  # by then a follower acknowledges something new
ELECTION_MAX_S = 0.5
CHECKS_S = 1.0  # in which the controller looks for silent brokers several times, and none has a session
HUNG_S = FENCED_MAX_S + 0.5
RESTART_MAX_S = 5.0  # a broker that was cut off from power is registered again by then
REACHED_THE_END = "end of the script"


class ScriptedNemesis(ClusterNemesis, ABC):
    """Does what a subclass's `_attempt` says, until it succeeds."""

    async def run(self, kinds: list[str], mean_interval_s: float) -> None:
        for _ in range(ATTEMPTS_MAX):
            await asyncio.sleep(self._draw.uniform(0.3, 0.6))
            if await self._attempt():
                self._loop.trace.cover(REACHED_THE_END)
                return

    @abstractmethod
    async def _attempt(self) -> bool:
        """Whether everything came about."""

    async def _until(self, is_so: Callable[[], bool], longest_s: float) -> bool:
        deadline_s = self._loop.time() + longest_s
        while not is_so() and self._loop.time() < deadline_s:
            await asyncio.sleep(POLL_S)
        return is_so()


class ScriptedWorld(ClusterWorld):
    """A cluster with `NEMESIS` and nobody who moves replicas."""

    NEMESIS: type[ScriptedNemesis]
    MOVED_VOTES_SHARE = UNCLEAN_SHARE = COMPACTED_SHARE = CONSUMER_GROUP_SHARE = MIXED_GROUP_SHARE = 0.0
    REBORN_SHARE = TRIMMED_SHARE = SILENCE_SHARE = SLOW_STEPS_SHARE = 0.0
    SHAPE = combined(3)

    def _draw_shape(self, draw: random.Random) -> Shape:
        return self.SHAPE

    def _draw_profile(self) -> str:
        return "calm"

    def _make_admin(self) -> Admin:
        return self._client(Admin, "admin")  # type: ignore[no-any-return]

    def _make_nemesis(self) -> ClusterNemesis:
        names = [client.name for client in self.clients]
        return self.NEMESIS(self.loop, self.network, self.nodes, names, self.history, self._stream("nemesis"), watch=self.watch)


class Pair(NamedTuple):
    """The two replicas of one partition, both in sync, and where they are."""

    leader: Partition
    follower: Partition
    leader_node: Node
    follower_node: Node


class OldFetchNemesis(ScriptedNemesis):
    """The fetch by which the only follower acknowledges its newest records reaches the leader after that follower has lost them.

    Meanwhile the follower lost power and has registered again. If the leader counts the fetch, what one log alone has is committed."""

    async def _attempt(self) -> bool:
        pair = self._find_pair()
        if pair is None:
            return False
        follower, leader = pair.follower_node, pair.leader_node
        self._network.slowness = 10.0
        is_sent = await self._until(lambda: self._acknowledges(pair), FETCH_MAX_S)
        self._network.slowness = 1.0
        if not is_sent:
            return False
        acknowledged_offset = pair.follower.log.log_end_offset
        self._network.cut(follower.host, leader.host)
        self._history.power_cuts_s.append(self._loop.time())
        follower.cut_power()
        follower.start()
        is_known = await self._until(lambda: self._watch.is_known(follower.host, leader.host), RESTART_MAX_S)
        await asyncio.sleep(self._draw.uniform(0.1, 0.5))  # it is unfenced
        now_there = self._watch.replicas[self._watch.place_of(pair.follower), follower.host]
        has_lost = now_there.log.log_end_offset < acknowledged_offset
        self._loop.note("fault", f"the fetch of {acknowledged_offset} arrives, {now_there.log.log_end_offset} are left")
        self._network.heal(follower.host, leader.host)
        await asyncio.sleep(1.0)
        return is_known and has_lost

    def _find_pair(self) -> Pair | None:
        """Of a partition without flush.messages, on two nodes that can be cut from each other without the controller's noticing."""
        by_host = {node.host: node for node in self._nodes}
        for (place, host), leader in self._watch.replicas.items():
            if leader.topic != PLAIN or not leader.is_leader or len(leader.isr) != 2 or not by_host[host].is_up:
                continue
            other = f"node{next(node_id for node_id in leader.isr if f'node{node_id}' != host)}"
            follower = self._watch.replicas.get((place, other))
            if follower is not None and self._watch.controller_host not in (None, host, other):
                return Pair(leader, follower, by_host[host], by_host[other])
        return None

    def _acknowledges(self, pair: Pair) -> bool:
        """Whether a fetch is under way that tells the leader what it does not know yet."""
        known = pair.leader.followers.get(int(pair.follower_node.host.removeprefix("node")))
        end_offset = pair.follower.log.log_end_offset
        is_news = known is not None and known.log_end_offset < end_offset
        return is_news and self._network.has_under_way(pair.follower_node.host, pair.leader_node.host, PORT)


class OldFetchWorld(ScriptedWorld):
    """Partitions of two replicas, both of which must have a record."""

    NEMESIS = OldFetchNemesis

    def _draw_settings(self) -> dict[str, str]:
        return {**super()._draw_settings(), "default.replication.factor": "2", "log.flush.interval.messages": "1000000"}


class ForgottenVoteNemesis(ScriptedNemesis):
    """Two candidates of one epoch that do not hear each other, and the voter between them restarts after its vote for the first."""

    async def _attempt(self) -> bool:
        first, second, voter = self._draw.sample(self._nodes, 3)
        by_id = {int(node.host.removeprefix("node")): node for node in self._nodes}
        candidates: list[tuple[int, Node]] = []  # of the two, with their epochs
        is_won = asyncio.Event()

        def note_candidate(state: RaftState) -> None:
            """Before it has asked for a vote: the first candidate has to wait until there is another one of its epoch."""
            candidates.append((state.epoch, by_id[state.me.node_id]))
            if candidates[-1][1] is not voter:
                self._network.cut(candidates[-1][1].host, voter.host)
            if len(candidates) == 2 and candidates[0][0] == candidates[1][0]:
                self._network.heal(candidates[0][1].host, voter.host)

        def note_leader(state: RaftState) -> None:
            """Before the voter hears who has won."""
            if len(candidates) == 2 and candidates[0] == (state.epoch, by_id[state.me.node_id]):
                self._network.cut(candidates[0][1].host, voter.host)
                is_won.set()

        with _calling(RaftState, "become_candidate", note_candidate), _calling(RaftState, "become_leader", note_leader):
            self._separate(first, second)
            await asyncio.sleep(self._draw.uniform(0.2, 0.5))  # both ask for pre-votes in vain
            voter.start()
            await self._until(is_won.is_set, ELECTION_MAX_S)
            if is_won.is_set():
                voter.kill()
                voter.start()
                self._network.heal(candidates[1][1].host, voter.host)
                await asyncio.sleep(0.5)
        self._network.heal_all()
        for node in self._nodes:
            node.start()
        return is_won.is_set()

    def _separate(self, first: Node, second: Node) -> None:
        """All processes end, and only these two begin again."""
        self._network.cut(first.host, second.host)
        self._network.cut(second.host, first.host)
        for node in self._nodes:
            node.kill()
        first.start()
        second.start()


class ForgottenVoteWorld(ScriptedWorld):
    """A cluster of three voters."""

    NEMESIS = ForgottenVoteNemesis


class ForgottenLogNemesis(ScriptedNemesis):
    """A voter comes back without its metadata log, and one that was cut off from what is committed asks it for its vote."""

    async def _attempt(self) -> bool:
        leader = next((node for node in self._nodes if node.host == self._watch.controller_host), None)
        if leader is None or not all(node.is_up for node in self._nodes):
            return False
        wiped, behind = self._draw.sample([node for node in self._nodes if node is not leader], 2)
        for other in (leader, wiped):
            self._network.cut(other.host, behind.host)
            self._network.cut(behind.host, other.host)
        await asyncio.sleep(self._draw.uniform(2.5, 3.5))  # its broker is fenced: that is committed without it
        leader.kill()
        wiped.kill()
        wiped.replace_metadata_disk()
        self._network.heal(behind.host, wiped.host)
        self._network.heal(wiped.host, behind.host)
        wiped.start()
        await asyncio.sleep(self._draw.uniform(1.0, 2.0))  # it asks for a vote, again and again
        self._network.heal_all()
        leader.start()
        return True


class ForgottenLogWorld(ScriptedWorld):
    """Three voters whose directories the metadata log names (kraft.version 1), each with a disk of its own for that log."""

    NEMESIS = ForgottenLogNemesis
    MOVED_VOTES_SHARE = 1.0

    def _draw_settings(self) -> dict[str, str]:
        return {**super()._draw_settings(), "metadata.log.dir": f"{DATA_DIR}-metadata"}


class SilenceNemesis(ScriptedNemesis):
    """All brokers but the controller's stand still until they are fenced, go on until they are unfenced, and then one of them hangs."""

    async def _attempt(self) -> bool:
        others = [node for node in self._brokers if node.host != self._watch.controller_host]
        for node in others:
            node.pause()
        are_missed = await self._until(lambda: all(map(self._is_fenced, others)), FENCED_MAX_S)
        await asyncio.sleep(CHECKS_S)
        for node in others:
            node.resume()
        are_back = await self._until(lambda: not any(map(self._is_fenced, others)), RESTART_MAX_S)
        hung = self._draw.choice(others)
        hung.pause()
        await asyncio.sleep(HUNG_S)
        hung.resume()
        return are_missed and are_back

    def _is_fenced(self, node: Node) -> bool:
        publisher = self._watch.publishers.get(self._watch.controller_host or "")
        broker = None if publisher is None else publisher._cache.state.brokers.get(node.node_id)
        return broker is not None and broker.is_fenced


class SilenceWorld(ScriptedWorld):
    """One controller, with a broker in its process or without, and two or three brokers. Only their sessions tell that they are silent."""

    NEMESIS = SilenceNemesis

    def _draw_shape(self, draw: random.Random) -> Shape:
        return draw.choice((ONE_CONTROLLER_APART, ONE_VOTER_OF_TWO))

    def _draw_settings(self) -> dict[str, str]:
        return {**super()._draw_settings(), "barnabas.fast.fencing": "false"}


def _calling(owner: type[Any], name: str, callback: Callable[[Any], None]) -> Any:
    """A patch: the method calls `callback` with its object when it has done its work."""
    method = getattr(owner, name)

    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        callback(self)
        return result

    return patch.object(owner, name, wrapper)
