"""`barnabas perf`, `top` and `topic list --rates` at both kinds of servers."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from barnabas.cli.perf.latencies import Latencies
from barnabas.cli.rates import Sample, bytes_per_s, records_per_s
from barnabas.cli.top.top import Top
from barnabas.cli.top.views import in_order
from tests.barnabas.cli.conftest import Command
from tests.barnabas.cli.test_group import commit

NAMES = {"average", "p50", "p95", "p99", "p99.9", "max"}


def test_load_is_written_and_read(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "2")

    written = command.done("perf", "produce", topic_name, "-n", "500", "-s", "20", "--rate", "5000", "--keys", "7", "-o", "json").data
    read = command.done("perf", "consume", topic_name, "--latency", "-o", "json").data

    assert (written["records"], written["size_bytes"], written["failed"]) == (500, 10_000, 0)
    assert written["seconds"] >= 0.09 and 0 < written["records_per_s"] < 6_000
    assert (read["records"], read["latency_ms"].keys()) == (500, NAMES) and read["size_bytes"] == 10_000
    times = written["latency_ms"]
    assert times.keys() == NAMES and 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["p99.9"] <= times["max"]
    text = command.done("perf", "produce", topic_name, "--duration", "100ms", "-p", "0", "--acks", "1").out
    assert " records delivered in " in text and "latency: average " in text
    assert command.done("perf", "consume", topic_name, "-n", "10").out.startswith("10 records read in ")


def test_load_that_is_not_understood_or_not_taken(command: Command, topic_name: str) -> None:
    for words in (("-n", "1", "-d", "1s"), ("-n", "0"), ("--rate", "0"), ("-d", "soon"), ("-s", "-1")):
        assert command("perf", "produce", topic_name, *words).code == 2
    assert command("perf", "consume", topic_name, "--new").code == 2
    assert command("perf", "produce", topic_name, "-n", "1").code == command("perf", "consume", topic_name).code == 1
    command.done("topic", "create", topic_name, "-c", "max.message.bytes=100")
    refused = command("perf", "produce", topic_name, "-n", "3", "-s", "1000", "-o", "json")
    assert refused.code == 1 and "3 records were not delivered: MESSAGE_TOO_LARGE" in refused.err and refused.data["failed"] == 3


def test_top_and_rates(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    command.done("perf", "produce", topic_name, "-n", "50")
    commit(command, f"of-{topic_name}", topic_name, {0: 20})

    seen = command.done("top", "--once", "-i", "0.05", "-o", "json").data

    (topic,) = [row for row in seen["topics"] if row["topic"] == topic_name]
    assert (topic["partitions"], topic["records_per_s"], topic["under_replicated"]) == (1, 0, 0) and topic["size_bytes"] > 5_000
    (group,) = [row for row in seen["groups"] if row["group"] == f"of-{topic_name}"]
    assert (group["state"], group["members"], group["lag"], group["lag_per_s"]) == ("Empty", 0, 30, 0)
    assert [row["address"] for row in seen["brokers"]] == [command.bootstrap]
    table = command.done("top", "--view", "topics", "--sort", "topic", "-i", "0.05", "-n", "1").out.splitlines()
    assert table[0].startswith("TOPIC") and len(table) <= 3
    assert command("top", "--sort", "nothing").code == command("top", "--interval", "0").code == 2
    (listed,) = command.done("topic", "list", topic_name, "--rates", "50ms", "-o", "json").data
    assert (listed["records_per_s"], listed["bytes_per_s"]) == (0, 0)


def test_rates_are_of_what_came_between_two_samples() -> None:
    a, b, gone = ("t", 0), ("t", 1), ("t", 2)
    before = Sample(10.0, None, {a: 100, b: 50, gone: None}, {a: 1_000, b: 500})
    after = Sample(12.0, None, {a: 140, b: 10, gone: 5}, {a: 3_000, b: 100})

    assert records_per_s(before, after, [a]) == 20 and bytes_per_s(before, after, [a, b]) == 1_000
    assert records_per_s(before, after, [b]) == 5, "the topic was made anew"
    assert records_per_s(before, after, [gone]) is None
    assert bytes_per_s(before, Sample(12.0, None, {}, None), [a]) is None


def test_rows_are_sorted_with_the_unknown_last() -> None:
    rows = [{"name": "b", "n": 1}, {"name": "a", "n": None}, {"name": "c", "n": 2}]

    assert [row["name"] for row in in_order(rows, "n", is_reversed=False)] == ["c", "b", "a"]
    assert [row["name"] for row in in_order(rows, "n", is_reversed=True)] == ["b", "c", "a"]
    assert [row["name"] for row in in_order(rows, "name", is_reversed=False)] == ["a", "b", "c"]


def test_keys_change_what_top_shows() -> None:
    options = SimpleNamespace(view=None, sort="", reverse=False)
    top = Top(None, options)  # type: ignore[arg-type]

    for key in ("g", "s", "r", "x"):
        top.press(key)

    assert (top._view, top._sorted_by["groups"], top._is_reversed, top._is_ended) == ("groups", "lag_per_s", True, False)
    top.press("q")
    assert top._is_ended


@pytest.mark.parametrize("scale_s", [1e-5, 1e-3, 0.5])
def test_quantiles_are_those_of_all_latencies(scale_s: float) -> None:
    generator = random.Random(7)
    latencies = [generator.expovariate(1 / scale_s) for _ in range(20_000)]
    counted = Latencies()
    for each in latencies:
        counted.add(each)

    assert Latencies().summary_ms() is None
    for quantile in (0.5, 0.95, 0.999):
        exact_ms = sorted(latencies)[int(quantile * len(latencies)) - 1] * 1_000
        assert counted.quantile_ms(quantile) == pytest.approx(exact_ms, rel=0.006, abs=0.001)
    assert len(counted._counts) < 3_000
