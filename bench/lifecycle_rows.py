"""Start, stop and memory of a broker that does ordinary work."""

from __future__ import annotations

import socket
import struct
import time
from statistics import median

from bench.clients.raw_produce import TIMESTAMP_MS, check_answer, produce_request
from bench.clients.wire import receive_exactly
from bench.servers import StartTimes, time_start
from bench.session import Outcome, Session
from bench.usage import peak_resident_megabytes, proportional_megabytes, resident_megabytes
from protocol.records import SimpleRecord, build_batch
from tests.support.process import ServerProcess

STARTS = 3
STOP_TIMEOUT_S = 30.0
SETTLE_S = 2.0  # after a start or a load, before memory is read
MEMORY_RECORDS, MEMORY_RECORD_SIZE, MEMORY_PARTITIONS = 8_000_000, 1_000, 6
START_TOPIC = "start"


def start(session: Session) -> Outcome:
    """Starts of a broker that has one topic and was stopped cleanly: to the open port, and to the first acknowledged produce."""
    with session.fresh() as fresh:
        fresh.create_topic(START_TOPIC, 1)
        fresh.server.stop()
        starts = [_start_and_stop(fresh.server) for _ in range(STARTS)]
    return Outcome(
        {"port_open_s": median(times.port_open_s for times in starts), "first_ack_s": median(times.first_answer_s for times in starts)}
    )


def memory(session: Session) -> Outcome:
    """A new broker's memory, idle and after 8 GB were produced to it and consumed again by librdkafka."""
    records = session.scaled(MEMORY_RECORDS)
    with session.fresh() as fresh:
        time.sleep(SETTLE_S)
        idle_mb = resident_megabytes(fresh.server.pid)
        fresh.create_topic("load", MEMORY_PARTITIONS)
        fresh.librdkafka("produce", "load", records, MEMORY_RECORD_SIZE)
        fresh.librdkafka("consume", "load", records, MEMORY_RECORD_SIZE, "--partitions", str(MEMORY_PARTITIONS))
        time.sleep(SETTLE_S)
        pid = fresh.server.pid
        values = {
            "idle_mb": idle_mb,
            "loaded_mb": resident_megabytes(pid),
            "peak_mb": peak_resident_megabytes(pid),
            "loaded_pss_mb": proportional_megabytes(pid),
        }
    notes = () if session.scale == 1.0 else (f"after {records * MEMORY_RECORD_SIZE / 1e9:.1f} GB",)
    return Outcome(values, notes)


def _start_and_stop(server: ServerProcess) -> StartTimes:
    process, times = time_start(server, _is_acknowledged)
    process.terminate()
    process.wait(STOP_TIMEOUT_S)
    return times


def _is_acknowledged(connection: socket.socket) -> bool:
    """Whether a produce request with acks=1 succeeds on this connection."""
    records = bytes(build_batch([SimpleRecord(None, b"first", timestamp=TIMESTAMP_MS)]))
    connection.settimeout(STOP_TIMEOUT_S)
    connection.sendall(produce_request(START_TOPIC, 1, acks=1, records=records))
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    answer = receive_exactly(connection, size)
    try:
        check_answer(struct.pack(">i", size) + answer, 0)
    except RuntimeError:
        return False  # the partition has no leader yet
    return True
