"""`python -m bench console`: `barnabas console` in Chromium, at a broker with 10,000 partitions and 1,000 groups.

1. The broker gets its topics, records in all partitions, and groups with committed offsets of all of them.
2. A new console and its first page, a few times: the overview before the console knows anything of the cluster.
3. Each page again, with what it knows by then.
4. A tail, while a producer writes 10,000 records a second.

Times are the browser's own, from the navigation on: of its first contentful paint, and of the frame after figures came into the page.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.servers import Product
from bench.session import MeasurementError, Session
from bench.usage import cpu_seconds, peak_resident_megabytes, resident_megabytes
from tests.support.chromium import launch_options
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

PARTITIONS, PER_TOPIC, GROUPS = 10_000, 10, 1_000
RECORDS_EACH, READ_EACH = 3, 1
"""Of a partition: how many there are, and how many its groups have read."""
NEW_CONSOLES, VISITS = 3, 5
TAIL_RATE, TAIL_S, TAIL_TOPIC = 10_000, 10.0, "tail"
STEP_S = 0.01
"""Of the producer's schedule."""
WAIT_MS = 60_000
WORDS_MAX = 200
"""Of a page, in an error."""
AT_ONCE = 200
"""Of the administrator's requests."""
TOPICS_AT_ONCE = 5
"""A broker of ours counts a request's topics with its partitions, against the number that its descriptors allow."""
FIRST_PAINT_MS_MAX, FIGURES_MS_MAX, MEMORY_MB_MAX = 300.0, 1_000.0, 150.0
UPDATES_MIN, SHOWN = 3.5, 200
"""Four updates a second are wanted, which a busy moment may delay."""
WATCH = """
(() => {
  window.benchFigures = null; window.benchUpdates = [];
  const look = () => {
    if (benchFigures === null && document.querySelector("main dl.facts dd, main table.rows tbody a")) {
      window.benchFigures = 0;
      requestAnimationFrame(() => { window.benchFigures = performance.now(); });
    }
  };
  new MutationObserver((changes) => {
    look();
    if (changes.some((each) => (each.target.id ?? each.target.parentElement?.id) === "counts")) benchUpdates.push(performance.now());
  }).observe(document, { childList: true, subtree: true, characterData: true });
})()
"""
PAINTED = """() => benchFigures && performance.getEntriesByName("first-contentful-paint").length
  ? [performance.getEntriesByName("first-contentful-paint")[0].startTime, benchFigures] : null"""
Times = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Tail:
    """`updates` of the page in `seconds`, with the longest time between two; `came` of `sent` records, with `shown` rows; the console's CPU
    seconds."""

    seconds: float
    updates: int
    gap_s: float
    sent: int
    came: int
    shown: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """First paint and figures of each page in ms, and the console's memory in MB: after the pages, after the tail, and at most."""

    pages: dict[str, list[tuple[float, float]]]
    memory_mb: tuple[float, float, float]
    tail: Tail
    load: tuple[float, float]
    """Of the machine, over the last minute: before and after."""


def run(product: Product, *, scale: float = 1.0, data_dir: Path | None = None) -> Result:
    """`scale` is of partitions, groups and the tail's time. Raises MeasurementError."""
    from playwright.sync_api import sync_playwright

    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=data_dir, ignore_cleanup_errors=True) as folder:
        session = Session(product, Path(folder), scale).open()
        try:
            fill(session)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(**launch_options())
                context = browser.new_context(viewport={"width": 1280, "height": 800})
                context.add_init_script(WATCH)
                context.new_page().goto("about:blank")
                pages, memory_mb, tail = _measure(session, context)
                browser.close()
        finally:
            session.close()
    return Result(pages, memory_mb, tail, (load, os.getloadavg()[0]))


def fill(session: Session) -> None:
    """Topics of ten partitions, and groups that are behind in one topic each. The tail's topic and that of the offsets are the last ten."""
    bootstrap, topics = session.server.bootstrap, max(session.scaled(PARTITIONS) // PER_TOPIC - 1, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [f"topic-{number:04}" for number in range(topics)]
    for first in range(0, topics, TOPICS_AT_ONCE):
        new = [NewTopic(name, PER_TOPIC, 1) for name in names[first : first + TOPICS_AT_ONCE]]
        for future in admin.create_topics(new, operation_timeout=60, request_timeout=120).values():
            future.result()
    admin.create_topics([NewTopic(TAIL_TOPIC, 3, 1)])[TAIL_TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "log_level": 0, "queue.buffering.max.messages": 1_000_000})
    for name in names:
        for number in range(PER_TOPIC * RECORDS_EACH):
            producer.produce(name, value(number), partition=number % PER_TOPIC)
    if producer.flush(120):
        raise MeasurementError("the records were not written")
    waiting = [f"group-{number:04}" for number in range(session.scaled(GROUPS))]
    while waiting:
        asked, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        futures = {}
        for group in asked:
            name = names[int(group.rpartition("-")[2]) % topics]
            offsets = [TopicPartition(name, partition, READ_EACH) for partition in range(PER_TOPIC)]
            futures |= admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])
        for group, future in futures.items():
            try:
                future.result()
            except KafkaException as e:
                if not e.args[0].retriable():
                    raise
                waiting.append(group)  # a coordinator that still loads


def value(number: int) -> bytes:
    """About 120 bytes of JSON."""
    return json.dumps({"id": number, "sku": f"SKU-{number % 1_000:04}", "customer": f"customer-{number % 97}", "note": "n" * 40}).encode()


def _measure(session: Session, context: BrowserContext) -> tuple[dict[str, list[tuple[float, float]]], tuple[float, float, float], Tail]:
    pages: dict[str, list[tuple[float, float]]] = {}
    for number in range(NEW_CONSOLES):
        with _console(session) as (process, base):
            pages.setdefault("overview, at once", []).append(_visit(context, base))
            if number < NEW_CONSOLES - 1:
                continue
            paths = ("", "/topics", "/topics?filter=topic-00&sort=records", "/topics/topic-0000", "/groups", "/group?id=group-0000")
            for path, title in zip(paths, ("overview", "topics", "topics, filtered", "a topic", "groups", "a group"), strict=True):
                pages[title] = [_visit(context, base + path) for _ in range(VISITS)]
            after_pages_mb = resident_megabytes(process.pid)
            tail = _tail(session, context, base, process.pid)
            memory_mb = after_pages_mb, resident_megabytes(process.pid), peak_resident_megabytes(process.pid)
    return pages, memory_mb, tail


@contextlib.contextmanager
def _console(session: Session) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the address of its cluster."""
    command = [sys.executable, "-m", "barnabas", "console", "--port", "0", "-b", session.server.bootstrap]
    environment = {**session.server.environment(), "XDG_CONFIG_HOME": str(session.directory)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words[:2] != ["console", "on"]:
            raise MeasurementError("the console has not started")
        yield process, f"{words[2]}c/{session.server.bootstrap.replace(':', '-')}"
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def _visit(context: BrowserContext, address: str) -> tuple[float, float]:
    from playwright.sync_api import TimeoutError as NotInTimeError

    page = context.new_page()
    try:
        page.goto(address, timeout=WAIT_MS)
        first_ms, figures_ms = page.wait_for_function(PAINTED, timeout=WAIT_MS).json_value()
        return first_ms, max(first_ms, figures_ms)
    except NotInTimeError as e:
        raise MeasurementError(f"{address} shows no figures: {_words(page)}") from e
    finally:
        page.close()


def _tail(session: Session, context: BrowserContext, base: str, pid: int) -> Tail:
    page = context.new_page()
    page.goto(f"{base}/topics/{TAIL_TOPIC}/messages?mode=tail", timeout=WAIT_MS)
    producer = Producer({"bootstrap.servers": session.server.bootstrap, "linger.ms": 5, "log_level": 0})
    deadline = time.monotonic() + WAIT_MS / 1_000
    while _came(page) == 0:  # the tail's reader may not stand at the end yet
        producer.produce(TAIL_TOPIC, b"first")
        producer.flush(30)
        page.wait_for_timeout(200)
        if time.monotonic() > deadline:
            raise MeasurementError(f"the tail shows nothing: {_words(page)}")
    before, seconds = _settled(page), max(TAIL_S * min(session.scale, 1.0), 1.0)
    count = int(TAIL_RATE * seconds)
    page.evaluate("benchUpdates.length = 0")
    cpu_s, began_s = cpu_seconds(pid), time.monotonic()
    writer = threading.Thread(target=_write, args=(producer, count, began_s), daemon=True)
    writer.start()
    page.wait_for_timeout(seconds * 1_000)
    times = page.evaluate("benchUpdates")
    cpu_s, took_s = cpu_seconds(pid) - cpu_s, time.monotonic() - began_s
    writer.join()
    while _came(page) - before < count and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    came, shown = _came(page) - before, page.locator("#records tr").count()
    page.close()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return Tail(took_s, len(times), max(gaps, default=took_s * 1_000) / 1_000, count, came, shown, cpu_s)


def _write(producer: Any, count: int, began_s: float) -> None:
    """`count` records on the schedule of TAIL_RATE."""
    written = 0
    while written < count:
        due = min(int((time.monotonic() - began_s) * TAIL_RATE), count)
        for number in range(written, due):
            producer.produce(TAIL_TOPIC, value(number), partition=number % 3)
        written = due
        producer.poll(STEP_S)
    producer.flush(60)


def _came(page: Page) -> int:
    """The number that the page tells."""
    word = (page.locator("#counts").text_content() or "").partition(" ")[0].replace(",", "")
    return int(word) if word.isdecimal() else 0


def _settled(page: Page) -> int:
    """The number, once it has not changed for a second: all the records that were written before the measurement have come by then."""
    before = -1
    while (now := _came(page)) != before:
        before = now
        page.wait_for_timeout(1_000)
    return now


def _words(page: Page) -> str:
    """The text of the page, shortened to one line."""
    return " ".join(page.locator("main").inner_text().split())[:WORDS_MAX]


def misses(result: Result) -> list[str]:
    """The targets that were missed, in a line each."""
    found = []
    for title, times in result.pages.items():
        first_ms, figures_ms = _medians(times)
        if first_ms > FIRST_PAINT_MS_MAX:
            found.append(f"{title}: first paint after {first_ms:.0f} ms, not {FIRST_PAINT_MS_MAX:.0f}")
        if figures_ms > FIGURES_MS_MAX:
            found.append(f"{title}: figures after {figures_ms:.0f} ms, not {FIGURES_MS_MAX:.0f}")
    if result.memory_mb[-1] > MEMORY_MB_MAX:
        found.append(f"memory: {result.memory_mb[-1]:.0f} MB, not {MEMORY_MB_MAX:.0f}")
    tail = result.tail
    if tail.updates / tail.seconds < UPDATES_MIN:
        found.append(f"tail: {tail.updates / tail.seconds:.1f} updates a second, not {UPDATES_MIN:g}")
    if tail.came != tail.sent or tail.shown != SHOWN:
        found.append(f"tail: {tail.came:,} of {tail.sent:,} records counted, {tail.shown} of {SHOWN} shown")
    return found


def table(result: Result) -> str:
    lines = [f"{'page':20} {'first paint':>12} {'figures':>10}   ms, the median of each and (the worst)"]
    for title, times in result.pages.items():
        first_ms, figures_ms = _medians(times)
        worst = max(each[0] for each in times), max(each[1] for each in times)
        lines.append(f"{title:20} {first_ms:5.0f} ({worst[0]:4.0f}) {figures_ms:5.0f} ({worst[1]:4.0f})")
    tail, (pages_mb, tail_mb, most_mb) = result.tail, result.memory_mb
    lines += [
        f"memory: {pages_mb:.0f} MB after the pages, {tail_mb:.0f} MB after the tail, {most_mb:.0f} MB at most",
        f"tail: {tail.updates / tail.seconds:.1f} updates a second, {tail.gap_s:.2f} s between two at most; {tail.came:,} of {tail.sent:,}"
        f" records counted in {tail.seconds:.0f} s, {tail.shown} shown; {tail.cpu_s / tail.seconds:.0%} of a core",
        f"load of the machine: {result.load[0]:.1f} before, {result.load[1]:.1f} after",
    ]
    return "\n".join(lines)


def _medians(times: Times) -> tuple[float, float]:
    return median(each[0] for each in times), median(each[1] for each in times)
