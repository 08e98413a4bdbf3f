"""The broker under attack, and what can be seen of its process from outside: memory, descriptors, log. Linux only."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from protocol.apis import APIS
from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.attack.canary import CanaryProcess
from tests.attack.echo import EchoProcess
from tests.attack.guard import Guard, Way, stay_outside
from tests.attack.launcher import CENSUS_FILE, NO_STACKS
from tests.support.broker import BrokerProcess
from tests.support.wire import WireClient

CANARY_TOPIC = "canary"
HONEST_TOPIC = "honest"
REWRITTEN_TOPIC = "rewritten"
REWRITTEN_CONFIG = {"compression.type": "uncompressed", "max.message.bytes": "4000000"}
"""Every compressed batch is decompressed and walked. 4 MB: a bomb of snappy needs 2."""
ATTACKED_TOPIC = "attacked"

SETTINGS = {"log.segment.delete.delay.ms": "1000"}
"""What a deleted topic leaves goes within the attack that deleted it, not a minute later."""
OWN_TOPICS = frozenset({CANARY_TOPIC, HONEST_TOPIC, REWRITTEN_TOPIC, ATTACKED_TOPIC})
QUIET_PORTS = (15_000, 32_000)
DELETE_TIMEOUT_S = 60.0
CENSUS_TIMEOUT_S = 60.0
TOPICS_PER_REQUEST = 500
LOOK_AGAIN_S = 0.2  # many creations take place in it, if there are any
GROUPS_WARMED = 16  # they meet each of the four partitions of the coordinator's topic
COORDINATOR_LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)

_TRACEBACK = re.compile(rb"^\s*Traceback \(most recent call last\)|MemoryError", re.MULTILINE)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_RESET_PEAK = "5"  # for /proc/PID/clear_refs: VmHWM becomes the present size


class Vitals(NamedTuple):
    """One look at the process. Megabytes are 10^6 bytes."""

    rss_mb: float
    descriptors: int
    log_bytes: int


def quiet_port() -> int:
    """A free port below those that the kernel gives to outgoing connections, of which a campaign has thousands."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.SystemRandom().randrange(*QUIET_PORTS)))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port


class AttackedBroker(BrokerProcess):
    """A broker with a meter on its loop, canaries beside it, and the topics that attacks and honest producers use."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, with_stacks: bool = False, guard: Guard | None = None
    ) -> None:
        of_guard = {} if guard is None else guard.settings(directory)
        super().__init__(directory, {**SETTINGS, **of_guard, **(settings or {})})
        self.guard = guard
        self.port = quiet_port() if guard is None else guard.port("PLAINTEXT")
        self.way = Way("PLAINTEXT", self.port, stay_outside) if guard is None else guard.logged_in()
        """By which clients come, and attackers if they have no other."""
        self.holds_path = directory / "holds.bin"
        self.stacks_path = directory / "stacks.txt"
        self._with_stacks = with_stacks
        self._echo = EchoProcess()
        self.canaries: dict[str, CanaryProcess] = {}

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        stacks = str(self.stacks_path) if self._with_stacks else NO_STACKS
        return [python, "-m", "tests.attack.launcher", str(self.holds_path), stacks, *arguments]

    def open(self) -> None:
        """Start, warm up and let the canaries begin."""
        self.start()
        with WireClient(self.host, self.port) as client:
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (CANARY_TOPIC, HONEST_TOPIC)]
            topics.append(CreatableTopic(name=ATTACKED_TOPIC, num_partitions=4, replication_factor=1))
            configs = [CreatableTopicConfig(name=name, value=value) for name, value in REWRITTEN_CONFIG.items()]
            topics.append(CreatableTopic(name=REWRITTEN_TOPIC, num_partitions=1, replication_factor=1, configs=configs))
            answer = client.request(CreateTopicsRequest(topics=topics), 7)
            assert all(topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for topic in answer.topics)
            if self.guard is not None:
                self.guard.give_rights(client)
        self._warm_up()
        self.start_canary("small")
        self.start_canary("echo")

    def _warm_up(self) -> None:
        """Make the broker import what it imports once: each handler and codec. That is no client's doing."""
        now_ms = time.time_ns() // 1_000_000
        with WireClient(self.host, self.port) as client:
            for codec in Compression:
                batch = build_batch([SimpleRecord(b"key", bytes(1000), timestamp=now_ms)], compression=codec)
                data = TopicProduceData(name=REWRITTEN_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
                client.request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
            for number in range(GROUPS_WARMED):
                while client.request(HeartbeatRequest(group_id=f"warm-{number}"), 3).error_code in COORDINATOR_LOADING:
                    client.request(FindCoordinatorRequest(key=f"warm-{number}"), 2)  # creates the coordinator's topic
            client.request(FindCoordinatorRequest(key="warm", key_type=1), 2)  # creates __transaction_state
        for api in APIS.values():
            with WireClient(self.host, self.port) as client:
                if api.key != 0:  # an empty Produce has acks=0, and no answer
                    with suppress(EOFError):  # an empty request about ACLs ends its connection
                        client.request(api.request_class(), api.max_version)

    def start_canary(self, kind: str, topic: str = CANARY_TOPIC) -> CanaryProcess:
        port = self._echo.port if kind == "echo" else self.port
        canary = CanaryProcess(kind, port, topic, self.directory / f"canary-{kind}-{time.monotonic_ns()}.bin")
        self.canaries[kind] = canary
        canary.wait_until_running()
        return canary

    def stop_canary(self, kind: str) -> None:
        self.canaries[kind].stop()

    def delete_other_topics(self) -> None:
        """What an attack created is no memory that it leaves. Topics of Metadata requests are still being created, ten at a time."""
        with WireClient(self.host, self.port, timeout_s=DELETE_TIMEOUT_S) as client:
            while others := self._other_topics(client):
                for place in range(0, len(others), TOPICS_PER_REQUEST):
                    states = [DeleteTopicState(name=name) for name in others[place : place + TOPICS_PER_REQUEST]]
                    client.request(DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6)

    def _other_topics(self, client: WireClient) -> list[str]:
        """The topics that are not the campaign's own, when two looks have found the same."""
        found: list[str] | None = None
        while True:
            topics = client.request(MetadataRequest(topics=None), 9).topics
            before, found = found, [topic.name for topic in topics if not topic.is_internal and topic.name not in OWN_TOPICS]
            if found == before:
                return found
            time.sleep(LOOK_AGAIN_S)

    def close(self) -> None:
        for canary in self.canaries.values():
            canary.stop()
        self._echo.stop()
        self.kill()

    def vitals(self) -> Vitals:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return Vitals(pages * _PAGE_BYTES / 1e6, len(os.listdir(f"/proc/{self.pid}/fd")), self.log_path.stat().st_size)

    def take_census(self) -> None:
        """Let the broker write what its memory consists of, into CENSUS_FILE in its directory."""
        path = self.directory / CENSUS_FILE
        os.kill(self.pid, signal.SIGUSR2)
        deadline_s = time.monotonic() + CENSUS_TIMEOUT_S
        while not path.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text(_RESET_PEAK)

    def peak_mb(self) -> float:
        """The most that was resident since `reset_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kilobytes) * 1024 / 1e6

    def tracebacks_since(self, log_position: int) -> int:
        with self.log_path.open("rb") as log:
            log.seek(log_position)
            return len(_TRACEBACK.findall(log.read()))

    def serves(self) -> bool:
        """Whether a good request on a new connection is answered."""
        try:
            with WireClient(self.host, self.port) as client:
                return bool(client.request(MetadataRequest(topics=[]), 9).brokers)
        except (OSError, EOFError):
            return False
