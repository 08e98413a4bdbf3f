"""A cluster in which a replica loses its log while its leader's begins within a batch."""

from __future__ import annotations

from typing import Any

from broker.replication.partition import Partition
from tests.simulation.cluster_nemesis import ClusterNemesis
from tests.simulation.connection import LostError
from tests.simulation.directed_worlds import RESTART_MAX_S, ScriptedNemesis, ScriptedWorld
from tests.simulation.history import Key
from tests.simulation.node import Node
from tests.simulation.trimmed import Trimmer

STEP_MAX_S = 15.0  # of a cluster in which two of three brokers are up


class TrimmedNemesis(ScriptedNemesis):
    """A follower is down and out of the ISR, its leader's records are deleted up to an offset within a batch, and its own files are lost.

    The follower has to begin with the whole batch, or it is never in sync again: nothing more is deleted."""

    trimmer: Trimmer

    async def _attempt(self) -> bool:
        key = self._draw.choice(self.trimmer.keys)
        if not await self._until(lambda: self._isr_count(key) == len(self._nodes), RESTART_MAX_S):
            return False
        leader = self._leader_of(key)
        follower = self._draw.choice([node for node in self._nodes if leader is not None and node.node_id != leader.leader_id])
        follower.kill()
        if not await self._until(lambda: self._isr_count(key) == len(self._nodes) - 1, STEP_MAX_S) or not await self._trim(key):
            follower.start()
            return False
        self._lose(follower, key)
        follower.start()
        await self._until(lambda: self._isr_count(key) == len(self._nodes), RESTART_MAX_S)
        return True

    def _leader_of(self, key: Key) -> Partition | None:
        """As the node sees it that leads in the latest epoch, and is up."""
        up = {node.host for node in self._nodes if node.is_up}
        found = [
            partition
            for (_, host), partition in self._watch.replicas.items()
            if (partition.topic, partition.partition) == key and host in up and partition.is_leader
        ]
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    def _isr_count(self, key: Key) -> int:
        leader = self._leader_of(key)
        return 0 if leader is None else len(leader.isr)

    async def _trim(self, key: Key) -> bool:
        """Whether the leader's log begins within a batch."""
        deadline_s = self._loop.time() + STEP_MAX_S
        while self._loop.time() < deadline_s:
            offset = self._find_offset_within_batch(key)
            try:
                if offset is not None and await self.trimmer.trim_to(key, offset):
                    return True
            except LostError:
                pass
            await self.trimmer.back_off()
        return False

    def _find_offset_within_batch(self, key: Key) -> int | None:
        """The last one that is committed and not deleted."""
        leader = self._leader_of(key)
        if leader is None:
            return None
        log = leader.log
        offsets = range(log.high_watermark - 1, log.log_start_offset, -1)
        return next((offset for offset in offsets if log.segments.start_of_batch(offset) < offset), None)

    def _lose(self, node: Node, key: Key) -> None:
        path = node.find_partition(*key)
        if path is not None:
            node.wipe(path)


class TrimmedWorld(ScriptedWorld):
    """Three brokers and the topic, whose records are deleted when the script says so."""

    NEMESIS = TrimmedNemesis
    TRIMMED_SHARE = 1.0

    def __init__(self, seed: int, **named: Any) -> None:
        super().__init__(seed, **named)
        (self._trimmer,) = (client for client in self.clients if isinstance(client, Trimmer))
        self._trimmer.acts_by_itself = False

    def _make_nemesis(self) -> ClusterNemesis:
        nemesis = super()._make_nemesis()
        assert isinstance(nemesis, TrimmedNemesis)
        nemesis.trimmer = self._trimmer
        return nemesis
