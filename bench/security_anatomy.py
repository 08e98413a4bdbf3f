"""What an authorizer and quotas add to one produce: KafkaApis.handle with each of them in turn, in this process, without a network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter_ns

from bench.clients.raw_produce import produce_request
from broker.dispatch import KafkaApis
from broker.handlers.services import Services
from broker.loop.turns import Turns
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation, AclPermissionType, PatternType, ResourceType
from broker.security.authorizer.acl_store import AclStore
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from broker.security.quotas.quota_managers import QuotaManagers
from protocol.records import SimpleRecord, build_batch
from tests.broker.replication.world import World
from tests.support.clock import WALL_START_MS

ACLS = 1_000
ROUNDS, PRODUCES = 40, 500
TOPIC, USER = "t", "User:alice"
EVERY_CLIENT = (("user", None), ("client-id", None))
UNREACHED = 1e12


def table() -> str:
    """The table as text: microseconds of a produce (v7, acks=1, a record of 50 bytes), the median of the rounds."""
    with tempfile.TemporaryDirectory(prefix="barnabas-anatomy-") as folder:
        world = World(Path(folder))
        world.create_topic(TOPIC)
        plain = world.services()
        cases = {
            "neither authorizer nor quotas": plain,
            f"an authorizer with {ACLS:,} ACLs": plain._replace(authorizer=_authorizer()),
            "a quota of bytes": plain._replace(quotas=_quotas("producer_byte_rate")),
            "a quota of request time": plain._replace(quotas=_quotas("request_percentage")),
        }
        times = _measure(world, cases)
    base = times["neither authorizer nor quotas"]
    title = "one produce with authorizer and quotas: v7, acks=1, a batch of one record of 50 bytes"
    lines = [title, "", "| with | µs | more |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {name} | {time_us:.1f} | {time_us - base:+.1f} |" for name, time_us in times.items()])


def _measure(world: World, cases: dict[str, Services]) -> dict[str, float]:
    batch = bytes(build_batch([SimpleRecord(None, b"x" * 50, timestamp=WALL_START_MS)]))
    frame = memoryview(bytearray(produce_request(TOPIC, 1, acks=1, records=batch)[4:]))
    records = frame[len(frame) - len(batch) :]
    facts, apis = {}, {}
    for name, services in cases.items():
        facts[name] = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        facts[name].principal = USER
        apis[name] = KafkaApis(services, Turns(lambda callback: callback(), world.clock.monotonic_us))
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name in cases:
            started_ns = perf_counter_ns()
            for _ in range(PRODUCES):
                records[0:8] = bytes(8)  # the append patched these
                records[12:16] = b"\xff\xff\xff\xff"
                apis[name].handle(frame, facts[name])
            times[name].append((perf_counter_ns() - started_ns) / PRODUCES / 1e3)
    return {name: sorted(measured)[ROUNDS // 2] for name, measured in times.items()}


def _authorizer() -> StandardAuthorizer:
    def acl(topic: str) -> Acl:
        return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, USER, "*", AclOperation.WRITE, AclPermissionType.ALLOW)

    topics = [TOPIC, *(f"other-{number}" for number in range(1, ACLS))]
    authorizer = StandardAuthorizer(AclStore({number.to_bytes(16): acl(topic) for number, topic in enumerate(topics)}))
    authorizer.is_loaded = True
    return authorizer


def _quotas(key: str) -> QuotaManagers:
    quotas = QuotaManagers(window_ms=1_000, windows_count=11, controller_window_ms=1_000, controller_windows_count=11)
    quotas.update(EVERY_CLIENT, key, UNREACHED)
    return quotas
