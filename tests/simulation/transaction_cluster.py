"""A simulated cluster with transactions: what tests/simulation/transaction_world.py does and checks, with partitions, coordinators and
markers on different brokers, which fail and lead in turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from storage.producer_state_entry import ProducerStateEntry
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.history import Key
from tests.simulation.transaction_world import TransactionWorld
from tests.support.history_checker import Position


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
