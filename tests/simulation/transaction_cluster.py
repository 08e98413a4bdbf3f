"""A simulated cluster with transactions: what tests/simulation/transaction_world.py does and checks, with partitions, coordinators and
markers on different brokers, which fail and lead in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from broker.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from storage.producer_state_entry import ProducerStateEntry
from tests.simulation.cluster_nemesis import ClusterNemesis
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.directed_worlds import ScriptedNemesis, ScriptedWorld
from tests.simulation.history import Key
from tests.simulation.node import Node
from tests.simulation.transaction_ledger import TransactionLedger
from tests.simulation.transaction_world import COPY, PARTITIONS_COUNT, SOURCE, TransactionWorld
from tests.support.history_checker import Position

OPEN_MAX_S = 2.0  # by then some transaction is open
DOWN_S = (4.5, 6.0)  # longer than a session and the timeout of a transaction


class TransactionClusterWorld(TransactionWorld, ClusterWorld):
    """Most clusters have three nodes."""

    OPTIONS = " --transactions --nodes 3"
    UNCLEAN_SHARE = REBORN_SHARE = TRIMMED_SHARE = 0.0

    def _replicated_keys(self) -> list[Key]:
        """The internal topics too, as far as they are there."""
        state = next(iter(self.watch.publishers.values()))._cache.state
        found = [(topic, state.topics.get(topic)) for topic in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)]
        return [*self.keys, *((topic, index) for topic, image in found if image is not None for index in range(len(image.partitions)))]

    async def _read_everything(self) -> dict[Key, list[Position]]:
        found = await super()._read_everything()
        self._compare_producers()
        return found

    def _compare_producers(self) -> None:
        """All replicas of a partition know the same of each producer."""
        for key, (_, replicas) in self._replicas().items():
            known = {host: _known(partition.log.producers.producers.values()) for host, partition in replicas.items()}
            first_host, *others = sorted(known)
            for host in others:
                differing = sorted(set(known[first_host].items()) ^ set(known[host].items()))
                if differing:
                    self.history.find("producers-differ", (key, first_host, host, differing[:4]))


def _known(entries: Iterable[ProducerStateEntry]) -> dict[int, tuple[Any, ...]]:
    """What decides about a producer's next batch or marker."""
    return {
        entry.producer_id: (
            entry.producer_epoch, entry.coordinator_epoch, entry.current_transaction_first_offset, entry.last_sequence,
        )
        for entry in entries
    }  # fmt: skip


class LeaderlessNemesis(ScriptedNemesis):
    """A broker is down that has the only replica of a partition in which a transaction is open. The transaction is aborted meanwhile: its
    marker has to wait for the partition's leader."""

    ledger: TransactionLedger

    async def _attempt(self) -> bool:
        if not await self._until(lambda: self._find_node() is not None, OPEN_MAX_S):
            return False
        node = self._find_node()
        assert node is not None
        node.kill()
        await asyncio.sleep(self._draw.uniform(*DOWN_S))
        node.start()
        return True

    def _find_node(self) -> Node | None:
        """That leads a partition of COPY in which a transaction is open."""
        leaders = {
            (partition.topic, partition.partition): host
            for (_, host), partition in self._watch.replicas.items()
            if partition.topic == COPY and partition.is_leader
        }
        hosts = [leaders[key] for key in self.ledger.find_open_keys() if key in leaders]
        return next((node for node in self._nodes if node.is_up and node.host in hosts), None)


class LeaderlessWorld(TransactionClusterWorld, ScriptedWorld):
    """Three brokers; the partitions of COPY have one replica each."""

    NEMESIS = LeaderlessNemesis

    async def _create_topics(self) -> None:
        await self.admin.create(SOURCE, PARTITIONS_COUNT, {})
        await self.admin.create(COPY, PARTITIONS_COUNT, {"min.insync.replicas": "1"}, replicas_count=1)

    def _make_nemesis(self) -> ClusterNemesis:
        nemesis = super()._make_nemesis()
        assert isinstance(nemesis, LeaderlessNemesis)
        nemesis.ledger = self.ledger
        return nemesis
