"""Session: a measurement's access to a running broker: temporary topics, client processes, and new brokers of the same kind.

It owns the topics and servers that it makes. The campaign owns the session and closes it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.clients.wire import WireClient
from bench.servers import Product
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.process import ServerProcess

CLIENT_TIMEOUT_S = 600.0
LEADERS_TIMEOUT_S = 60.0
PARTITIONS_PER_REQUEST = 9_000  # Kafka makes less than 10,000 records of one request
LATEST = -1  # timestamp that asks for the end offset
CLIENT_BOUND_SHARE = 0.95  # of one core


class MeasurementError(Exception):
    """A measurement could not be made, or its result proves the load wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of a row: a value for each figure's key, and notes for the reader."""

    values: Mapping[str, float]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Session:
    """One running broker under measurement. `scale` multiplies every volume: 1.0 is what the published figures use."""

    product: Product
    directory: Path
    scale: float = 1.0
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    """Of the broker's PLAINTEXT listener, where `settings` name it."""
    _server: ServerProcess | None = None
    _kept_topics: set[str] = field(default_factory=set)
    _names: Iterator[int] = field(default_factory=itertools.count)

    @property
    def server(self) -> ServerProcess:
        assert self._server is not None, "the session is not open"
        return self._server

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes whose CPU is the broker's."""
        return (self.server.pid,)

    def open(self) -> Self:
        self._server = self.product.server(self.directory / "broker", self.settings)
        self._server.port = self.port or self._server.port
        self._server.start()
        return self

    def close(self) -> None:
        """Stops the broker and removes its data."""
        if self._server is not None and self._server.is_running:
            self._server.kill()
        shutil.rmtree(self.directory / "broker", ignore_errors=True)

    def scaled(self, volume: int) -> int:
        return max(1, int(volume * self.scale))

    @contextlib.contextmanager
    def fresh(self, settings: Mapping[str, str] | None = None, port: int | None = None) -> Iterator[Self]:
        """A session over a new broker of the same kind on an empty directory. Both are removed at the end. `port` is that of the
        PLAINTEXT listener, where the settings name it."""
        with tempfile.TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as folder:
            session = type(self)(self.product, Path(folder), self.scale, settings or {}, port)
            try:
                yield session.open()
            finally:
                session.close()

    @contextlib.contextmanager
    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Iterator[str]:
        """A new topic, deleted at the end."""
        name = f"bench-{next(self._names)}"
        self.create_topic(name, partitions, configs)
        try:
            yield name
        finally:
            with self.wire() as client:
                client.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 4)

    def kept_topic(self, name: str, partitions: int, records: int, size: int) -> str:
        """A topic with that content, made at the first call and kept for the next ones."""
        if name not in self._kept_topics:
            self.create_topic(name, partitions)
            self.librdkafka("produce", name, records, size)
            self._kept_topics.add(name)
        return name

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic and returns when all its partitions have a leader."""
        topic_configs = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        first_count = min(partitions, PARTITIONS_PER_REQUEST)
        topic = CreatableTopic(name=name, num_partitions=first_count, replication_factor=1, configs=topic_configs)
        with self.wire() as client:
            created = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5).topics[0]
            if created.error_code:
                raise MeasurementError(f"topic {name} was not created: error {created.error_code} {created.error_message}")
            if first_count < partitions:
                more = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
                grown = client.request(CreatePartitionsRequest(topics=[more], timeout_ms=60_000), 2).results[0]
                if grown.error_code:
                    raise MeasurementError(f"topic {name} was not enlarged: error {grown.error_code} {grown.error_message}")
            deadline = time.monotonic() + LEADERS_TIMEOUT_S
            while time.monotonic() < deadline:
                topic_metadata = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 8).topics[0]
                leaders = [partition for partition in topic_metadata.partitions if partition.leader_id >= 0]
                if len(leaders) == partitions and not topic_metadata.error_code and self._are_served(client, name, partitions):
                    return
                time.sleep(0.02)
        raise MeasurementError(f"topic {name} has no leaders")

    def _are_served(self, client: WireClient, name: str, partitions: int) -> bool:
        """Whether every log exists: a topic's leaders are known before the last of many logs is made."""
        asked = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST) for partition in range(partitions)]
        answer = client.request(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)]), 5)
        return not any(partition.error_code for partition in answer.topics[0].partitions)

    def end_offsets(self, name: str, partitions: int = 1) -> int:
        """The sum of the partitions' end offsets: how many records a new topic has taken."""
        asked = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST) for partition in range(partitions)]
        with self.wire() as client:
            answer = client.request(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)]), 5)
        return sum(partition.offset for partition in answer.topics[0].partitions)

    def wire(self) -> WireClient:
        return WireClient(self.server.host, self.server.port)

    def librdkafka(self, mode: str, topic: str, records: int, size: int, *options: str) -> dict[str, Any]:
        """One run of `bench.clients.librdkafka_load`."""
        return self.client("librdkafka_load", mode, "--topic", topic, "--records", str(records), "--size", str(size), *options)

    def client(self, module: str, *options: str) -> dict[str, Any]:
        """Runs a module of bench.clients against the broker and returns what it printed."""
        return self.wait_for_client(self.start_client(module, *options))

    def start_client(self, module: str, *options: str, server: ServerProcess | None = None) -> subprocess.Popen[str]:
        """A client of the session's broker, or of `server`."""
        pids = self.pids if server is None else (server.pid,)
        command = [
            sys.executable,
            "-m",
            f"bench.clients.{module}",
            *options,
            "--port",
            str((server or self.server).port),
            *(word for pid in pids for word in ("--broker-pid", str(pid))),
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_client(self, process: subprocess.Popen[str], timeout_s: float = CLIENT_TIMEOUT_S) -> dict[str, Any]:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as e:
            process.kill()
            process.communicate()
            raise MeasurementError(f"a client ran for more than {timeout_s} s") from e
        if process.returncode != 0:
            raise MeasurementError(f"a client failed: {errors.strip()[-600:]}\nthe broker's log: {self.server.log_tail()[-600:]}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result


def client_note(result: Mapping[str, float]) -> tuple[str, ...]:
    """A note if the client's own CPU has limited a run."""
    share = result["client_cpu_seconds"] / result["seconds"]
    return (f"client-bound: the client used {share:.0%} of a core",) if share >= CLIENT_BOUND_SHARE else ()
