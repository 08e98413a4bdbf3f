"""Applications with one transactional id each: instance after instance of a client, which die, are replaced, and sometimes live on as
zombies beside those that took over. And one that sends markers of old transactions again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.simulation.clients import Client
from tests.simulation.connection import LostError
from tests.simulation.consumers import Consumer
from tests.simulation.history import Key
from tests.simulation.transaction_ledger import TransactionLedger
from tests.simulation.transaction_watch import TransactionWatch
from tests.simulation.transactional import FIND_VERSION, OFFSET_FETCH_VERSION, TRANSACTION_VERSION_FEATURE, TransactionalClient
from tests.support.history_checker import Position

LIFE_MEAN_S = 0.8
ZOMBIE_SHARE, CRASH_SHARE = 0.5, 0.4  # of the instances that are replaced; the others end orderly
WRITE_MARKERS_VERSIONS, UPDATE_FEATURES_VERSION = (1, 2), 1
UPGRADE, SAFE_DOWNGRADE = 1, 2


class Application(Client):
    """Runs one instance of `make_instance` (its argument is a name) after the other. All have the application's transactional id."""

    def __init__(self, *arguments: Any, make_instance: Callable[[str], TransactionalClient], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._make_instance = make_instance
        self._instances: dict[TransactionalClient, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            instance = self._make_instance(f"{self.name}-{len(self._instances) + 1}")
            task = self._instances[instance] = self.loop.create_task(instance.run())
            until_s = self.now_s + self.draw.expovariate(1 / LIFE_MEAN_S)
            while not task.done() and not self.is_stopping and self.now_s < until_s:
                await asyncio.sleep(0.01)
            if task.done():
                await asyncio.sleep(self.draw.uniform(0.0, 0.2))
            elif self.draw.random() < ZOMBIE_SHARE:
                self.note(f"{instance.name} is left behind as a zombie")
                self.loop.trace.cover("zombie")
            elif self.draw.random() < CRASH_SHARE:
                task.cancel()
            else:
                instance.is_stopping = True
        for instance, task in self._instances.items():
            instance.is_stopping = True
            if self.draw.random() < CRASH_SHARE:
                task.cancel()  # its transaction is open until the coordinator aborts it
        for instance, task in self._instances.items():
            await task
            await instance.end_late_requests()
            self.operations_count += instance.operations_count


class CommittedConsumer(Consumer):
    """Reads only what is committed."""

    def __init__(self, *arguments: Any, ledger: TransactionLedger, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._ledger = ledger

    def _read_committed(self, key: Key, partition: Any, polled: dict[Key, list[Position]]) -> None:
        super()._read_committed(key, partition, polled)
        self._ledger.saw_last_stable_offset(self.name, key, partition.last_stable_offset, self.now_s)

    def record(self, polled: dict[Key, list[Position]], invoked_s: float, **more: Any) -> None:
        super().record(polled, invoked_s, **more)
        self._ledger.saw(self.name, polled, self.now_s)


class OffsetReader(Client):
    """Looks which offsets of a group count, and looks also for those that are not to be seen yet."""

    def __init__(self, *arguments: Any, ledger: TransactionLedger, group: str, keys: list[Key], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._ledger = ledger
        self._group = group
        self._keys = keys

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self.read(require_stable=self.draw.random() < 0.5)
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(0.0, 0.05))

    async def read(self, *, require_stable: bool) -> dict[Key, int] | None:
        """The committed offsets, None if they are not told now. Raises LostError."""
        topics: dict[str, list[int]] = {}
        for topic, partition in self._keys:
            topics.setdefault(topic, []).append(partition)
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]
        request = OffsetFetchRequest(group_id=self._group, topics=asked, require_stable=require_stable)
        response = await self.ask(request, OFFSET_FETCH_VERSION, self.draw.choice(self._addresses))
        if response.error_code:
            return None
        found: dict[Key, int] = {}
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    return None
                key = (topic.name, each.partition_index)
                found[key] = max(each.committed_offset, 0)
                self._ledger.saw_committed_offset(self.name, key, found[key], self.now_s)
        return found

    async def find_coordinator(self) -> None:
        """As each client of a group begins; who is the first makes __consumer_offsets. Raises LostError."""
        await self.ask(FindCoordinatorRequest(key=self._group, key_type=0), FIND_VERSION, self.draw.choice(self._addresses))


class MarkerRepeater(Client):
    """Sends markers again that were written once, as a coordinator does that has lost its office, or whose answer was lost."""

    def __init__(self, *arguments: Any, watch: TransactionWatch, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._watch = watch

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self.draw.uniform(0.0, 0.3))
            if not self._watch.markers:
                continue
            topic, partition, marker = self.draw.choice(self._watch.markers[-20:])
            written = WritableTxnMarker(
                producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, transaction_result=marker.is_commit,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                coordinator_epoch=marker.coordinator_epoch, transaction_version=marker.transaction_version,
            )  # fmt: skip
            version = 2 if marker.transaction_version else self.draw.choice(WRITE_MARKERS_VERSIONS)
            try:
                response = await self.ask(WriteTxnMarkersRequest(markers=[written]), version, self.draw.choice(self._addresses))
            except LostError:
                await self.back_off()
                continue
            error = response.markers[0].topics[0].partitions[0].error_code
            self.note(f"{topic}-{partition} {marker}: {error}")
            self.loop.trace.cover("late marker" if error == 0 else "late marker refused")


class LevelChanger(Client):
    """Changes transaction.version, up and down, now and then. Clients that have heard of another one go on by its rules for a while."""

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self.draw.uniform(0.2, 1.0))
            level = self.draw.randint(0, 2)
            for upgrade_type in (UPGRADE, SAFE_DOWNGRADE):
                update = FeatureUpdateKey(feature=TRANSACTION_VERSION_FEATURE, max_version_level=level, upgrade_type=upgrade_type)
                try:
                    response = await self.ask(UpdateFeaturesRequest(timeout_ms=1_000, feature_updates=[update]), UPDATE_FEATURES_VERSION)
                except LostError:
                    await self.back_off()
                    break
                error = response.error_code or next((each.error_code for each in response.results), 0)
                self.note(f"{TRANSACTION_VERSION_FEATURE} {level}: {error}")
                if error == 0:
                    self.loop.trace.cover("transaction.version changed")
                    break
            if self.draw.random() < 0.3:
                await self.back_off()
