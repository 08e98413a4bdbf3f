"""Three brokers: acks=all, replication factor 3, min.insync.replicas 2. CPU and memory are all brokers' together."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from statistics import median

from bench import endurance_rows, latency_rows, produce_rows
from bench.cluster_session import NODES, ClusterSession
from bench.session import MeasurementError, Outcome, Session
from bench.usage import peak_resident_megabytes, resident_megabytes
from tests.faults.failover import Failover, Victim, run_round

RATES = (1_000, 5_000, 10_000)
# A linger of 5 ms makes 200 requests a second. Apache Kafka reads a connection's next request after the response to the previous one, so
# that with acks=all a request for each record would measure its queue.
REQUESTS_PER_S = 200
PRODUCE_RECORDS, RECORD_SIZE, PARTITIONS = 1_000_000, 1_000, 6
LOCK_STEP_REQUESTS, LOCK_STEP_SIZE = 8_000, 100
MEMORY_RECORDS = 2_000_000
FAILOVER_ROUNDS = 3
SETTLE_S = 2.0  # after a start or a load, before memory is read


def produce(partitions: int) -> Callable[[Session], Outcome]:
    """librdkafka, idempotent, linger 5 ms, records of 1 KB."""

    def measure(session: Session) -> Outcome:
        records = session.scaled(PRODUCE_RECORDS)
        return produce_rows.librdkafka_load(session, records, RECORD_SIZE, "--idempotence", partitions=partitions)

    return measure


def lock_step(session: Session) -> Outcome:
    """One request of one record in flight, over one connection to the partition's leader."""
    return produce_rows.lock_step_with(session, "--acks", "-1", "--size", str(LOCK_STEP_SIZE), requests=LOCK_STEP_REQUESTS)


def at_rate(rate: int) -> Callable[[Session], Outcome]:
    """`rate` records per second, gathered as a producer gathers them."""
    return latency_rows.at_rate(REQUESTS_PER_S, acks=-1, batch=rate // REQUESTS_PER_S)


def memory(session: Session) -> Outcome:
    """New nodes' memory, idle and after librdkafka has produced and consumed 2 GB, and the CPU of idle nodes."""
    records = session.scaled(MEMORY_RECORDS)
    with session.fresh() as fresh:
        time.sleep(SETTLE_S)
        idle_mb = sum(map(resident_megabytes, fresh.pids))
        idle_cpu_percent = endurance_rows.idle_cpu_percent(*fresh.pids)
        fresh.create_topic("load", PARTITIONS)
        fresh.librdkafka("produce", "load", records, RECORD_SIZE)
        fresh.librdkafka("consume", "load", records, RECORD_SIZE, "--partitions", str(PARTITIONS))
        time.sleep(SETTLE_S)
        values = {
            "idle_mb": idle_mb,
            "idle_cpu_percent": idle_cpu_percent,
            "loaded_mb": sum(map(resident_megabytes, fresh.pids)),
            "peak_mb": sum(map(peak_resident_megabytes, fresh.pids)),
        }
    notes = () if session.scale == 1.0 else (f"after {records * RECORD_SIZE / 1e9:.1f} GB",)
    return Outcome(values, notes)


def failover(session: Session) -> Outcome:
    """kill -9 of the partition's leader, and of a leader that is the active controller too: the time to the next ack of a producer with
    default settings, and to a survivor's first response with another leader."""
    rounds = max(1, session.scaled(FAILOVER_ROUNDS))
    with session.fresh() as fresh:
        leader = [_round(fresh, Victim.LEADER, number) for number in range(rounds)]
        controller = [_round(fresh, Victim.CONTROLLER, number) for number in range(rounds)]
    return Outcome(
        {
            "next_ack_ms": median(each.next_ack_ms for each in leader),
            "new_leader_ms": median(each.new_leader_ms for each in leader),
            "controller_next_ack_ms": median(each.next_ack_ms for each in controller),
            "longest_ms": max(each.next_ack_ms for each in (*leader, *controller)),
        }
    )


def _round(session: Session, victim: Victim, number: int) -> Failover:
    assert isinstance(session, ClusterSession), f"a row of {NODES} nodes"
    try:
        return run_round(session.cluster, f"{victim.value}-{number}", victim, signal.SIGKILL, {}, random.Random(number))
    except AssertionError as e:  # the tests' tool raises it for a timeout or a lost record
        raise MeasurementError(f"kill -9 of the {victim.value}: {e}") from e
