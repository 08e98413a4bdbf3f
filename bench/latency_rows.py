"""Latency at a fixed rate, from the schedule (no coordinated omission): produce, and produce to fetch."""

from __future__ import annotations

from collections.abc import Callable

from bench.session import Outcome, Session, client_note

RATES = (1_000, 5_000, 10_000, 20_000)
END_TO_END_RATES = (1_000, 10_000)
SPAN_S = 8  # of measured schedule
WARMUP_S = 1
LATE_SHARE_MAX = 0.01  # of the requests; beyond it the client, not the broker, made the latencies


def at_rate(rate: int, *, acks: int, batch: int = 1, is_end_to_end: bool = False) -> Callable[[Session], Outcome]:
    """The measurement of `rate` requests per second: `batch` records of 1 KB in each, one connection."""

    def measure(session: Session) -> Outcome:
        requests, warmup = session.scaled(rate * SPAN_S), rate * WARMUP_S
        options = ["--rate", str(rate), "--requests", str(requests), "--warmup", str(warmup), "--acks", str(acks), "--records", str(batch)]
        if is_end_to_end:
            options.append("--end-to-end")
        with session.topic() as topic:
            result = session.client("open_loop", "--topic", topic, *options)
        values = {key: result[key] for key in ("p50_us", "p99_us", "p999_us", "max_us")}
        values["cpu_us"] = 1e6 * result["broker_cpu_seconds"] / result["requests"]
        late = result["late_sends"] / result["requests"]
        notes = (f"{late:.1%} of the requests were sent over 1 ms late by the client",) if late > LATE_SHARE_MAX else ()
        return Outcome(values, client_note(result) + notes)

    return measure
