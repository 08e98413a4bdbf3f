"""The table of rows: figures, units and targets.

A row is one measurement that yields one or more figures. The `CORE` and `CLUSTER` rows are in the tables of docs/performance.md. The others
run only by name.
"""

from __future__ import annotations

from bench import (
    cluster_rows,
    consume_rows,
    consumer_group_rows,
    endurance_rows,
    fairness_rows,
    group_rows,
    latency_rows,
    lifecycle_rows,
    platform_rows,
    produce_rows,
    scaling_rows,
    spark_rows,
    tls_rows,
    transaction_rows,
)
from bench.row import Figure, Row, rate_figure


def _lock_step_figures(
    p50: float | None = None, cpu: float | None = None, recorded: tuple[float, float] | None = None
) -> tuple[Figure, ...]:
    recorded_p50, recorded_cpu = recorded or (None, None)
    return (
        Figure("p50_us", "p50", "µs", limit=p50, recorded=recorded_p50),
        Figure("p99_us", "p99", "µs"),
        Figure("cpu_us", "CPU per request", "µs", limit=cpu, recorded=recorded_cpu),
    )


def _cluster_produce_figures(recorded_mb_per_s: float, recorded_cpu: float) -> tuple[Figure, ...]:
    return (
        rate_figure("mb_per_s", "throughput", "MB/s", kafka=1.5, recorded=recorded_mb_per_s),
        Figure("cpu_s_per_gb", "CPU per GB", "s", limit=3, recorded=recorded_cpu),
    )


_LATENCY_FIGURES = (
    Figure("p50_us", "p50", "µs"),
    Figure("p99_us", "p99", "µs"),
    Figure("p999_us", "p99.9", "µs"),
    Figure("max_us", "longest", "µs"),
    Figure("cpu_us", "CPU per request", "µs"),
)
_CONSUME_FIGURES = (
    rate_figure("mb_per_s", "together", "MB/s"),
    rate_figure("slowest_mb_per_s", "the slowest", "MB/s"),
    Figure("cpu_s_per_gb", "CPU per GB", "s"),
)

CORE = (
    Row(
        "start",
        "start, clean, one topic",
        lifecycle_rows.start,
        (
            Figure("port_open_s", "to the open port", "s", limit=0.25, recorded=1.92),
            Figure("first_ack_s", "to the first acked produce", "s", limit=0.3, recorded=2.05),
        ),
        is_core=True,
        runs_max=3,
    ),
    Row("lock-step", "produce, 1 in flight, acks=1", produce_rows.lock_step, _lock_step_figures(60, 50, (39, 57)), is_core=True),
    Row(
        "pipelined",
        "produce, 64 in flight, acks=1",
        produce_rows.pipelined,
        (
            rate_figure("requests_per_s", "requests", "/s", limit=45_000, recorded=28_495),
            Figure("cpu_us", "CPU per request", "µs", limit=20, recorded=34.5),
        ),
        is_core=True,
    ),
    Row(
        "produce-1kb",
        "librdkafka produce 1 KB, acks=all, 1 partition",
        produce_rows.librdkafka_1kb,
        (
            rate_figure("mb_per_s", "throughput", "MB/s", kafka=1.0, recorded=689),
            Figure("cpu_s_per_gb", "CPU per GB", "s", limit=0.6, recorded=1.20),
        ),
        is_core=True,
        writes_gb=2.1,
    ),
    Row(
        "produce-100b",
        "librdkafka produce 100 B, acks=all, 6 partitions",
        produce_rows.librdkafka_100b,
        (
            rate_figure("records_per_s", "records", "/s", kafka=1.0, recorded=1_490_000),
            Figure("cpu_s_per_gb", "CPU per GB", "s", kafka_factor=0.5, recorded=5.2),
        ),
        is_core=True,
        writes_gb=1.0,
    ),
    Row(
        "produce-lz4",
        "librdkafka produce 1 KB lz4, repeated pattern, acks=all, 6 partitions",
        produce_rows.librdkafka_lz4,
        (
            rate_figure("mb_per_s", "throughput, uncompressed", "MB/s", kafka=1.0, recorded=1137),
            Figure("cpu_s_per_gb", "CPU per GB, uncompressed", "s", kafka_factor=0.5, recorded=0.81),
        ),
        is_core=True,
        writes_gb=0.1,
    ),
    Row(
        "produce-lz4-text",
        "librdkafka produce 1 KB lz4, text, acks=all, 6 partitions",
        produce_rows.librdkafka_lz4_text,
        (
            rate_figure("mb_per_s", "throughput, uncompressed", "MB/s", kafka=1.0),
            Figure("cpu_s_per_gb", "CPU per GB, uncompressed", "s", kafka_factor=0.5),
        ),
        is_core=True,
        writes_gb=0.7,
    ),
    Row(
        "consume-1kb",
        "librdkafka consume 1 KB, 1 partition",
        consume_rows.librdkafka_1kb,
        (
            rate_figure("mb_per_s", "throughput", "MB/s", kafka=1.0, recorded=1342),
            Figure("cpu_s_per_gb", "CPU per GB", "s", limit=0.1, recorded=0.176),
        ),
        is_core=True,
    ),
    Row(
        "raw-limit",
        "no broker: recv + pwrite, sendfile, and a small exchange",
        platform_rows.raw_limit,
        (
            rate_figure("in_mb_per_s", "in", "MB/s"),
            Figure("in_cpu_s_per_gb", "CPU per GB in", "s"),
            rate_figure("out_mb_per_s", "out", "MB/s"),
            Figure("out_cpu_s_per_gb", "CPU per GB out", "s"),
            Figure("echo_p50_us", "one small request, p50", "µs"),
            Figure("echo_cpu_us", "CPU per small request", "µs"),
            Figure("awake_p50_us", "the same, polling, p50", "µs"),
            Figure("awake_cpu_us", "the same, polling, CPU", "µs"),
        ),
        is_core=True,
        runs_max=3,
        writes_gb=2.0,
    ),
    Row(
        "memory",
        "resident memory",
        lifecycle_rows.memory,
        (
            Figure("idle_mb", "idle", "MB", limit=60, recorded=387),
            Figure("loaded_mb", "after 8 GB in and out", "MB", limit=150, recorded=1187),
            Figure("peak_mb", "peak", "MB"),
            Figure("loaded_pss_mb", "PSS after 8 GB in and out", "MB"),
        ),
        is_core=True,
        runs_max=1,
        main_key="loaded_mb",
    ),
    *transaction_rows.rows(is_cluster=False),
)

CLUSTER = (
    Row(
        "cluster-produce-1kb",
        "three nodes: librdkafka produce 1 KB, acks=all, idempotent, 6 partitions",
        cluster_rows.produce(cluster_rows.PARTITIONS),
        _cluster_produce_figures(178, 9.5),
        is_core=True,
        writes_gb=3.2,
        is_cluster=True,
    ),
    Row(
        "cluster-lock-step",
        "three nodes: produce 100 B, 1 in flight, acks=all",
        cluster_rows.lock_step,
        (
            Figure("p50_us", "p50", "µs", limit=400, recorded=910),
            Figure("p99_us", "p99", "µs", limit=2_000, recorded=8_000),
            Figure("cpu_us", "CPU per request", "µs", limit=600, recorded=2_400),
        ),
        is_core=True,
        is_cluster=True,
    ),
    *(
        Row(
            f"cluster-rate-{rate}",
            f"three nodes: {rate:,} records/s × 1 KB in {cluster_rows.REQUESTS_PER_S} requests, acks=all",
            cluster_rows.at_rate(rate),
            _LATENCY_FIGURES,
            is_core=True,
            is_cluster=True,
        )
        for rate in cluster_rows.RATES
    ),
    Row(
        "cluster-memory",
        "three nodes: resident memory and idle CPU together",
        cluster_rows.memory,
        (
            Figure("idle_mb", "idle", "MB", limit=180, recorded=1_008),
            Figure("loaded_mb", "after 2 GB in and out", "MB", limit=360, recorded=1_440),
            Figure("peak_mb", "peaks", "MB"),
            Figure("idle_cpu_percent", "CPU while idle", "%"),
        ),
        is_core=True,
        runs_max=1,
        writes_gb=6.3,
        main_key="loaded_mb",
        is_cluster=True,
    ),
    Row(
        "cluster-failover",
        "three nodes: kill -9 of a leader to the next ack",
        cluster_rows.failover,
        (
            Figure("next_ack_ms", "a leader", "ms", limit=500, recorded=9_000),
            Figure("new_leader_ms", "until another leads", "ms"),
            Figure("controller_next_ack_ms", "leader and controller", "ms", limit=500),
            Figure("longest_ms", "longest of both", "ms"),
        ),
        is_core=True,
        runs_max=2,
        is_cluster=True,
    ),
    *transaction_rows.rows(is_cluster=True),
)

FURTHER = (
    Row(
        "cluster-produce-1kb-1-partition",
        "three nodes: the same with 1 partition",
        cluster_rows.produce(1),
        _cluster_produce_figures(154, 8.9),
        writes_gb=3.2,
        is_cluster=True,
    ),
    Row(
        "lock-step-one-core",
        "produce, 1 in flight, broker and client on one core",
        produce_rows.lock_step_one_core,
        (*_lock_step_figures(), Figure("echo_p50_us", "no broker, p50", "µs"), Figure("echo_cpu_us", "no broker, CPU", "µs")),
    ),
    Row("lock-step-idempotent", "produce, 1 in flight, acks=1, idempotent", produce_rows.lock_step_idempotent, _lock_step_figures()),
    Row("lock-step-10-partitions", "produce to 10 partitions, 1 in flight", produce_rows.lock_step_10_partitions, _lock_step_figures()),
    Row("lock-step-100-partitions", "produce to 100 partitions, 1 in flight", produce_rows.lock_step_100_partitions, _lock_step_figures()),
    Row(
        "produce-1kb-6-partitions",
        "librdkafka produce 1 KB, acks=all, 6 partitions",
        produce_rows.librdkafka_1kb_6_partitions,
        (rate_figure("mb_per_s", "throughput", "MB/s"), Figure("cpu_s_per_gb", "CPU per GB", "s")),
        writes_gb=2.1,
    ),
    *(
        Row(f"rate-{rate}-acks-{name}", f"{rate:,} records/s × 1 KB, acks={name}", latency_rows.at_rate(rate, acks=acks), _LATENCY_FIGURES)
        for rate in latency_rows.RATES
        for name, acks in (("1", 1), ("all", -1))
    ),
    *(
        Row(
            f"end-to-end-{rate}",
            f"produce to fetch, {rate:,} records/s × 1 KB",
            latency_rows.at_rate(rate, acks=1, is_end_to_end=True),
            _LATENCY_FIGURES,
        )
        for rate in latency_rows.END_TO_END_RATES
    ),
    *(Row(f"tail-{count}", f"{count} at the tail of one partition", consume_rows.tail(count), _CONSUME_FIGURES) for count in (1, 12)),
    *(Row(f"cold-{count}", f"{count} from the disk", consume_rows.cold(count), _CONSUME_FIGURES, runs_max=3) for count in (1, 12)),
    *(
        Row(
            f"rebalance-{count}",
            f"a group of {count} joins again and syncs",
            group_rows.rebalance(count),
            (Figure("rebalance_ms", "median", "ms"), Figure("longest_ms", "longest", "ms")),
        )
        for count in (1, 10, 100)
    ),
    *(
        Row(
            f"consumer-rebalance-{count}",
            f"one more member comes to a KIP-848 group of {count:,}, and goes",
            consumer_group_rows.rebalance(count),
            (
                Figure("change_ms", "until all have their share", "ms"),
                Figure("cpu_ms", "CPU per change", "ms"),
                Figure("longest_ms", "longest", "ms"),
                Figure("form_ms", "until the group had formed", "ms"),
                Figure("records", "records per change", ""),
                Figure("heartbeats", "heartbeats per change", ""),
            ),
            runs_max=3,
        )
        for count in (1, 10, 100, 1_000)
    ),
    Row(
        "idle-connections",
        "2,000 idle connections",
        endurance_rows.idle_connections,
        (Figure("kb_per_connection", "memory each", "kB"), Figure("idle_cpu_percent", "CPU while idle", "%")),
        runs_max=1,
    ),
    Row(
        "many-partitions",
        "1,000 partitions",
        endurance_rows.many_partitions,
        (
            Figure("create_s", "created in", "s"),
            Figure("kb_per_partition", "memory each", "kB"),
            Figure("idle_cpu_percent", "CPU while idle", "%"),
            Figure("clean_start_s", "start after a stop", "s"),
            Figure("recovery_s", "start after kill -9", "s"),
        ),
        runs_max=1,
    ),
    Row(
        "recovery",
        "kill -9 after 4 GB",
        endurance_rows.recovery,
        (Figure("recovery_s", "start", "s"), Figure("s_per_gb", "per GB", "s")),
        runs_max=2,
        writes_gb=4.2,
    ),
    *(
        Row(
            f"flushed-{count}",
            f"flush.messages=1, {count} producers",
            endurance_rows.flushed(count),
            (rate_figure("requests_per_s", "requests", "/s"), Figure("p50_us", "p50", "µs"), Figure("p99_us", "p99", "µs")),
        )
        for count in (1, 8, 64)
    ),
    *(
        Row(
            f"fair-{name}",
            f"1,000 records/s beside {what}",
            measure,
            (
                Figure("alone_p99_us", "p99 alone", "µs"),
                Figure("elsewhere_p99_us", "p99, the load on another broker", "µs"),
                Figure("beside_p99_us", "p99 beside", "µs"),
                Figure("added_p99_us", "added to p99", "µs", limit=2_000),
                Figure("shared_p99_us", "of it by sharing the broker", "µs"),
                Figure("added_p50_us", "added to p50", "µs"),
            ),
            main_key="beside_p99_us",
        )
        for name, what, measure in (
            ("pipelining", "a connection that pipelines without end, 64 in flight", fairness_rows.beside_pipelining),
            ("flood", "a connection that pipelines without end, 5,000 in flight", fairness_rows.beside_flood),
            ("cold-read", "a consumer of 4 cold GB", fairness_rows.beside_cold_read),
            ("recompression", "a producer whose lz4 batches the broker compresses anew by zstd", fairness_rows.beside_recompression),
        )
    ),
    *(
        Row(
            name,
            f"{what}, 100 B, 4 partitions",
            spark_rows.batch(data_source),
            (
                rate_figure("sink_rows_per_s", "sink", "rows/s"),
                Figure("sink_cpu_s_per_million", "broker's CPU per million written", "s"),
                Figure("sink_spark_cpu_s_per_million", "Spark's", "s"),
                rate_figure("source_rows_per_s", "source", "rows/s"),
                Figure("source_cpu_s_per_million", "broker's CPU per million read", "s"),
                Figure("source_spark_cpu_s_per_million", "Spark's", "s"),
            ),
            runs_max=3,
        )
        for name, what, data_source in (
            ("spark", "Spark's kafka sink and source", "kafka"),
            ("spark-barnabas", 'Spark with format("barnabas"), each row once', "barnabas"),
        )
    ),
    *(
        Row(
            f"scale-{what}-{count}",
            f"lock-step produce with {count:,} {what.replace('-', ' ')}",
            measure(count),
            _lock_step_figures(),
            runs_max=3,
            writes_gb=count * scaling_rows.SEGMENT_BYTES / 1e9 if what == "segments" else 0.0,
        )
        for what, measure, counts in (
            ("partitions", scaling_rows.partitions, scaling_rows.COUNTS),
            ("connections", scaling_rows.connections, scaling_rows.COUNTS),
            ("segments", scaling_rows.segments, scaling_rows.COUNTS),
            ("producer-ids", scaling_rows.producer_ids, scaling_rows.COUNTS),
        )
        for count in counts
    ),
    *(
        Row(
            f"scale-processes-{count}",
            f"{scaling_rows.PROCESSES_CLIENTS} clients that pipeline, {count} broker processes",
            scaling_rows.processes(count),
            (rate_figure("requests_per_s", "requests", "requests/s"),),
            runs_max=3,
        )
        for count in scaling_rows.PROCESSES
    ),
    Row(
        "tls-produce-1kb",
        "librdkafka, 1 KB, on a TLS listener",
        tls_rows.produce_1kb,
        (rate_figure("mb_per_s", "throughput", "MB/s"), Figure("cpu_s_per_gb", "CPU per GB", "s")),
        writes_gb=2.5,
    ),
    Row(
        "tls-consume-1kb",
        "librdkafka reads 1 KB on a TLS listener",
        tls_rows.consume_1kb,
        (rate_figure("mb_per_s", "throughput", "MB/s"), Figure("cpu_s_per_gb", "CPU per GB", "s")),
        writes_gb=1,
    ),
    Row("tls-lock-step", "produce, 1 in flight, acks=1, on a TLS listener", tls_rows.lock_step, _lock_step_figures()),
    Row(
        "tls-connections",
        "new TLS connections, one after the other",
        tls_rows.connections,
        (rate_figure("connections_per_s", "rate", "connections/s"), Figure("cpu_ms", "CPU each", "ms")),
    ),
)

ROWS = {row.name: row for row in CORE + CLUSTER + FURTHER}


def select(names: str) -> list[Row]:
    """The rows of a comma-separated list, the core rows for an empty one. Raises SystemExit for a name that is not in the table."""
    wanted = [name for name in names.replace(" ", ",").split(",") if name]
    unknown = [name for name in wanted if name not in ROWS]
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    return [ROWS[name] for name in wanted] if wanted else [*CORE, *CLUSTER]
