"""Elections: the changes of leaders and ISRs that the controller makes by itself, and the elections that clients request. Computes records.

All changes of partitions begin with a PartitionChange from `Elections.change`, which has the brokers that may lead, the topic's
min.insync.replicas, and whether eligible leader replicas are enabled (KIP-966). Operations on many partitions run in steps.

Source: ReplicationControlManager (generateLeaderAndIsrUpdates, electLeaders, maybeBalancePartitionLeaders, maybeElectUncleanLeaders).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from broker.controller.broker_partitions import BrokerPartitions, PartitionKey, directory_of
from broker.controller.controller_result import Steps
from broker.controller.partition_change import Election, PartitionChange
from broker.metadata.cluster_state import ClusterState
from broker.metadata.features import ELR_FEATURE
from broker.metadata.image import (
    MIGRATING_DIRECTORY,
    RECOVERED,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    PartitionImage,
    TopicImage,
)
from config.properties import ConfigError
from config.server import ServerConfig
from config.topic import TOPIC_PROPERTIES
from protocol.messages.stored.metadata_records import PartitionChangeRecord

MIN_IN_SYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

NOBODY = -1

CHANGES_AT_ONCE = 300
"""Partitions whose changes are computed, encoded and replayed in one step, some 20 µs each. They are one batch, and a broker takes a batch
over at once, 20 µs for each partition that it begins to lead."""


class _Rules(NamedTuple):
    """The facts that all changes of a topic's partitions share."""

    topic: TopicImage
    min_isr: int
    is_elr_enabled: bool


class Elections:
    """Reads `state`, never changes it. `node_id` is the controller's own: its dynamic configs hold for topics, as in ConfigControl."""

    def __init__(self, state: ClusterState, config: ServerConfig, node_id: int, partitions: BrokerPartitions) -> None:
        self._state = state
        self._config = config
        self._own_name = str(node_id)
        self._being_fenced: Counter[int] = Counter()
        self.partitions = partitions

    # -- who may lead ----------------------------------------------------------------------------------------------

    def is_being_fenced(self, node_id: int) -> bool:
        """Whether the broker is being fenced, in steps. It gets no leadership meanwhile."""
        return self._being_fenced[node_id] > 0

    def usable_brokers(self) -> dict[int, BrokerImage]:
        """Returns all brokers, for the placement of new partitions. A broker that is being fenced is shown as fenced."""
        being_fenced = [node_id for node_id, count in self._being_fenced.items() if count and node_id in self._state.brokers]
        return self._state.brokers | {node_id: self._state.brokers[node_id]._replace(is_fenced=True) for node_id in being_fenced}

    def acceptor(self, image: PartitionImage, *, but_not: int = NOBODY, and_also: int = NOBODY) -> Callable[[int], bool]:
        """Returns a function that tells whether a node may lead the partition: the broker is active, and its replica is in an online
        directory.

        Broker `and_also` counts as active because it is about to be unfenced. Broker `but_not`, and all that are being fenced, do not
        count."""
        brokers = self._state.brokers

        def can_lead(node_id: int) -> bool:
            broker = brokers.get(node_id)
            if broker is None or node_id == but_not or self._being_fenced[node_id] > 0:
                return False
            return (broker.is_active or node_id == and_also) and is_online(broker, directory_of(image, node_id))

        return can_lead

    # -- one partition ---------------------------------------------------------------------------------------------

    def change(self, topic: TopicImage, image: PartitionImage, can_lead: Callable[[int], bool] | None = None) -> PartitionChange:
        """Returns a change of the partition without a target, which the caller sets."""
        return self._change(self._rules(topic), image, can_lead or self.acceptor(image))

    def _change(self, rules: _Rules, image: PartitionImage, can_lead: Callable[[int], bool]) -> PartitionChange:
        return PartitionChange(
            image, can_lead, min_isr=rules.min_isr, is_elr_enabled=rules.is_elr_enabled, default_directory=self._default_directory
        )

    def _rules(self, topic: TopicImage) -> _Rules:
        return _Rules(topic, self._min_isr(topic), self.is_elr_enabled)

    @property
    def is_elr_enabled(self) -> bool:
        return self._state.features.get(ELR_FEATURE, 0) > 0

    def allows_unclean(self, topic: TopicImage) -> bool:
        """Whether an unclean election is allowed: if no live replica has every committed record, any live one may lead."""
        setting = self._setting(topic.name, UNCLEAN_ELECTION)
        return self._config.unclean_leader_election_enable if setting is None else bool(setting)

    def _min_isr(self, topic: TopicImage) -> int:
        setting = self._setting(topic.name, MIN_IN_SYNC_REPLICAS)
        return min(self._config.min_insync_replicas if setting is None else int(setting), len(topic.partitions[0].replicas))

    def _setting(self, topic: str, name: str) -> Any | None:
        """Returns the topic's own value, else this controller's, else the cluster's; None if none is set, or if it cannot be parsed."""
        state = self._state
        for texts in (state.topic_overrides(topic), state.broker_overrides(self._own_name), state.broker_overrides("")):
            if name in texts:
                try:
                    return TOPIC_PROPERTIES[name].parse(texts[name])
                except ConfigError:
                    continue  # stored by another version
        return None

    def _default_directory(self, node_id: int) -> bytes:
        broker = self._state.brokers.get(node_id)
        if broker is None:
            return UNASSIGNED_DIRECTORY
        return default_directory(broker)

    def prepare(self) -> Steps[None]:
        """Know all partitions, which else is done when it is first needed."""
        for _ in self.partitions.take_in_steps():
            yield []

    # -- a broker comes or goes ------------------------------------------------------------------------------------

    def updates(
        self, keys: Iterable[PartitionKey], *, gone: int = NOBODY, is_unclean: bool = False, back: int = NOBODY
    ) -> list[PartitionChangeRecord]:
        """Returns the changes of the partitions when broker `gone` leaves their ISRs, or when `back` may lead. Partitions without a change
        are left out.

        `is_unclean` means that the broker was not stopped cleanly and may have lost its last records: it is not an eligible leader
        replica any more either."""
        records = []
        rules: _Rules | None = None
        election = Election.ONLINE
        for topic, index in keys:
            if rules is None or rules.topic is not topic:
                if self._state.topics_by_id.get(topic.topic_id) is not topic:
                    continue  # deleted meanwhile
                rules = self._rules(topic)
                election = Election.UNCLEAN if self.allows_unclean(topic) else Election.ONLINE
            image = topic.partitions[index]
            change = self._change(rules, image, self.acceptor(image, but_not=gone, and_also=back))
            change.election = election
            if gone in image.isr:
                change.isr = [node_id for node_id in image.isr if node_id != gone]
            if is_unclean:
                change.unclean_shutdown_replicas = frozenset({gone})
            if back != NOBODY:
                change.renews_leader_epoch = image.leader == back
                if image.leader_recovery_state == RECOVERING and image.replicas == (back,):
                    # After an unclean election the leader first recovers its followers. Here it has none.
                    change.leader_recovery_state = RECOVERED
            record = change.build(topic.topic_id, index)
            if record is not None:
                records.append(record)
        return records

    def fence_broker(self, node_id: int, finish: Callable[[int], Sequence[Any]], *, is_unclean: bool = False) -> Steps[None]:
        """Elect other leaders for the broker's partitions and remove it from the ISRs. Partitions that it leads come first.

        `finish` returns the records that end the fencing; it gets the number of records before them in the same batch. If the controller
        dies in the middle, its successor fences the broker again."""
        self._being_fenced[node_id] += 1
        try:
            yield from self.prepare()
            keys = self.partitions.led_by(node_id)
            yield []
            keys += self.partitions.followed_by(node_id)
            yield []
            while len(keys) > CHANGES_AT_ONCE:
                piece, keys = keys[:CHANGES_AT_ONCE], keys[CHANGES_AT_ONCE:]
                yield self.updates(piece, gone=node_id, is_unclean=is_unclean)
            last = self.updates(keys, gone=node_id, is_unclean=is_unclean)
            yield [*last, *finish(len(last))]
        finally:
            self._being_fenced[node_id] -= 1

    def unfence_broker(self, node_id: int, unfencing: Any) -> Steps[None]:
        """Unfence the broker by the record `unfencing`, and elect it where there is no leader and it may lead."""
        yield from self._unfence(node_id, unfencing, self.partitions.leaderless())

    def unfence_only_broker(self, node_id: int, unfencing: Any) -> Steps[None]:
        """As `unfence_broker`, for the only broker of a cluster. It leads as before, because no other broker became leader meanwhile.

        The leader epoch is bumped even if the leader stays the same. By it, consumers notice that a power cut may have lost records
        (KIP-320)."""
        keys = [PartitionKey(topic, index) for topic in self._state.topics.values() for index in range(len(topic.partitions))]
        yield from self._unfence(node_id, unfencing, keys)

    def _unfence(self, node_id: int, unfencing: Any, keys: list[PartitionKey]) -> Steps[None]:
        yield [unfencing, *self.updates(keys[:CHANGES_AT_ONCE], back=node_id)]
        for start in range(CHANGES_AT_ONCE, len(keys), CHANGES_AT_ONCE):
            broker = self._state.brokers.get(node_id)
            if broker is None or not broker.is_active:
                return  # fenced again between two steps, or about to be
            yield self.updates(keys[start : start + CHANGES_AT_ONCE], back=node_id)

    # -- of itself, now and then -----------------------------------------------------------------------------------

    def balance(self) -> Steps[None]:
        """Elect preferred replicas where they can lead (auto.leader.rebalance.enable)."""
        yield from self._elect_in_steps(self.partitions.imbalanced, Election.PREFERRED)

    def elect_unclean(self) -> Steps[None]:
        """Elect replicas that may lack committed records, for partitions without a leader whose topic's config allows it."""
        yield from self._elect_in_steps(
            lambda: (key for key in self.partitions.leaderless() if self.allows_unclean(key.topic)), Election.UNCLEAN
        )

    def _elect_in_steps(self, find: Callable[[], Iterator[PartitionKey]], election: Election) -> Steps[None]:
        yield from self.prepare()
        step: list[Any] = []
        looked_at = 0
        for topic, index in find():
            if self._state.topics_by_id.get(topic.topic_id) is not topic:
                continue
            change = self.change(topic, topic.partitions[index])
            change.election = election
            record = change.build(topic.topic_id, index)
            step += [] if record is None else [record]
            looked_at += 1
            if looked_at % CHANGES_AT_ONCE == 0:
                yield step
                step = []
        yield step


def default_directory(broker: BrokerImage) -> bytes:
    """Returns the directory in which the broker will put a new replica: known if it has only one."""
    log_dirs = broker.log_dirs
    if not log_dirs:
        return MIGRATING_DIRECTORY
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY


def is_online(broker: BrokerImage, directory: bytes) -> bool:
    """Whether a replica in that directory of the broker may lead. Brokers from before KIP-858 registered none."""
    return not broker.log_dirs or directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY) or directory in broker.log_dirs
