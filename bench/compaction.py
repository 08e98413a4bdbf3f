"""`python -m bench compaction`: a topic of 1 KB records is compacted while it is written and read; Barnabas and Apache Kafka in turn.

1. The topic is filled without compaction and read once: the last record of each key must be the last one that was sent.
2. A producer on a schedule and a consumer at the end run for a while: their latencies without a cleaner.
3. Compaction is enabled, and the same producer and consumer run until all closed segments of the topic are clean.
4. The topic is read again, and every key is compared with the producers' records.

Every run has a new broker, and its data is removed before the next one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

from bench.clients.keyed_load import NEVER, VALUE_SIZE, load
from bench.servers import Product
from bench.session import MeasurementError, Session
from bench.usage import cpu_seconds, peak_resident_megabytes
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

TOPIC = "compacted"
ALTER_VERSION, TOPIC_RESOURCE, SET = 0, 2, 0
SEGMENTS = 10  # of the topic when it is filled
SEGMENT_BYTES_MAX = 1 << 30
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "500",  # Barnabas writes the cleaner's with the others
    "log.initial.task.delay.ms": "500",
}
BASELINE_S = 20.0
POLL_S = 0.05
CLEANING_TIMEOUT_S = 3_600.0
CLIENT_TIMEOUT_S = 3_600.0


@dataclass(slots=True)
class Result:
    """One run. `memory_mb`: each process's peak while the cleaner ran, the broker's first."""

    product: str
    fill_mb_per_s: float
    dirty_gb: float
    clean_s: float
    cleaner_cpu_s: float
    records_left: int
    memory_mb: list[float]
    alone: dict[str, float]
    beside: dict[str, float]
    notes: list[str] = field(default_factory=list)

    @property
    def gb_per_s(self) -> float:
        return self.dirty_gb / self.clean_s


def run(products: Sequence[Product], *, gigabytes: float, keys: int, pairs: int, rate: int, data_dir: Path | None) -> list[Result]:
    """`pairs` runs of each product, in turn."""
    results = []
    for _ in range(pairs):
        for product in products:
            with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=data_dir, ignore_cleanup_errors=True) as folder:
                session = Session(product, Path(folder), settings=SETTINGS)
                try:
                    results.append(_Run(session.open(), gigabytes, keys, rate).measure())
                finally:
                    session.close()
            print(table(results[-1:]), flush=True)
    return results


def table(results: Sequence[Result]) -> str:
    """Medians of each product's runs."""
    lines = [
        "product    GB dirty  clean s   GB/s  CPU s  peak MB (broker, others)  p99 ms alone/beside  p99.9  max  records left",
    ]
    for name in dict.fromkeys(result.product for result in results):
        runs = [result for result in results if result.product == name]

        memory = ", ".join(f"{median(each):.0f}" for each in zip(*(run.memory_mb for run in runs), strict=False))
        alone, beside = (
            [median([getattr(run, which)[key] for run in runs]) / 1e3 for key in ("p99_us", "p999_us", "max_us")]
            for which in ("alone", "beside")
        )
        lines.append(
            f"{name:10} {median([run.dirty_gb for run in runs]):8.2f} {median([run.clean_s for run in runs]):8.1f} "
            f"{median([run.gb_per_s for run in runs]):6.3f} {median([run.cleaner_cpu_s for run in runs]):6.1f}  {memory:24}  "
            f"{alone[0]:.2f}/{beside[0]:.2f}  {alone[1]:.1f}/{beside[1]:.1f}  {alone[2]:.0f}/{beside[2]:.0f}  "
            f"{median([run.records_left for run in runs]):.0f}"
        )
    return "\n".join(lines)


class _Run:
    """One product, one time."""

    def __init__(self, session: Session, gigabytes: float, keys: int, rate: int) -> None:
        self._session = session
        self._records = int(gigabytes * 1e9 / VALUE_SIZE)
        self._keys = keys
        self._rate = rate
        self._files = {name: session.directory / f"{name}.last" for name in ("fill", "before", "alone", "beside", "after")}

    def measure(self) -> Result:
        session = self._session
        segment_bytes = min(max(int(self._records * VALUE_SIZE / SEGMENTS), 1 << 20), SEGMENT_BYTES_MAX)
        session.create_topic(
            TOPIC, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "segment.bytes": str(segment_bytes)}
        )
        filled = self._client("fill", "--records", str(self._records))
        self._say(f"filled at {filled['megabytes_per_s']:.0f} MB/s")
        before = self._client("read")
        expected = load(self._files["fill"])
        self._compare(expected, load(self._files["before"]), "before")
        self._say(f"{before['records']:.0f} records read, {self._keys} keys compared")
        alone = self._client("pace", "--seconds", str(BASELINE_S), "--first", str(int(before["end"])))
        end_offset, dirty_bytes = self._closed_segments()
        with self._pacing(int(alone["next"])) as beside, _Watch(session.server.pid) as watch:
            time.sleep(1.0)
            watch.begin()
            started = time.perf_counter()
            self._let_clean()
            self._wait_until_clean(end_offset)
            clean_s = time.perf_counter() - started
            watch.end()
        self._say(f"cleaned in {clean_s:.1f} s")
        after = self._client("read")
        overlay(expected, load(self._files["alone"]), load(self._files["beside"]))
        self._compare(expected, load(self._files["after"]), "after")
        return Result(
            session.product.name, filled["megabytes_per_s"], dirty_bytes / 1e9, clean_s, watch.cpu_s, int(after["records"]),
            watch.peaks_mb(), alone, beside,
        )  # fmt: skip

    def _say(self, text: str) -> None:
        print(f"{self._session.product.name}: {text}", file=sys.stderr, flush=True)

    def _client(self, mode: str, *options: str) -> dict[str, float]:
        process = self._start(mode, *options)
        return self._wait(process)

    def _start(self, mode: str, *options: str, file: str = "") -> subprocess.Popen[str]:
        name = file or {"fill": "fill", "pace": "alone"}.get(mode) or ("after" if self._files["before"].exists() else "before")
        common = ["--topic", TOPIC, "--keys", str(self._keys), "--file", str(self._files[name]), "--rate", str(self._rate)]
        return self._session.start_client("keyed_load", mode, *common, *options)

    def _wait(self, process: subprocess.Popen[str]) -> dict[str, float]:
        return self._session.wait_for_client(process, timeout_s=CLIENT_TIMEOUT_S)

    @contextmanager
    def _pacing(self, first: int) -> Iterator[dict[str, float]]:
        """Producer and consumer run during the `with` block. The dict has their figures after it."""
        process = self._start("pace", "--first", str(first), file="beside")
        found: dict[str, float] = {}
        try:
            yield found
            found.update(self._wait(process))  # which closes its stdin
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _log_dir(self) -> Path:
        return self._session.server.data_dir

    def _closed_segments(self) -> tuple[int, int]:
        """The base offset of the active segment, and the bytes before it."""
        sizes = {int(path.stem): path.stat().st_size for path in (self._log_dir() / f"{TOPIC}-0").glob("*.log")}
        active = max(sizes)
        return active, sum(size for offset, size in sizes.items() if offset < active)

    def _let_clean(self) -> None:
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC,
            configs=[AlterableConfig(name="min.cleanable.dirty.ratio", config_operation=SET, value="0.01")],
        )  # fmt: skip
        with self._session.wire() as client:
            answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), ALTER_VERSION).responses[0]
        if answer.error_code:
            raise MeasurementError(f"the topic's config was not altered: error {answer.error_code}")

    def _wait_until_clean(self, end_offset: int) -> None:
        deadline = time.monotonic() + CLEANING_TIMEOUT_S
        while self._clean_end() < end_offset:
            if time.monotonic() > deadline or not self._session.server.is_running:
                raise MeasurementError(f"clean up to {self._clean_end()} of {end_offset}; {self._session.server.log_tail()[-600:]}")
            time.sleep(POLL_S)

    def _clean_end(self) -> int:
        try:
            lines = (self._log_dir() / CLEANER_CHECKPOINT).read_text().splitlines()
        except FileNotFoundError:
            return 0
        return next((int(line.rsplit(" ", 1)[1]) for line in lines[2:] if line.startswith(f"{TOPIC} 0 ")), 0)

    def _compare(self, expected: array[int], found: array[int], when: str) -> None:
        if expected == found:
            return
        differing = [(key, *pair) for key, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
        raise MeasurementError(f"{when} the compaction {len(differing)} keys differ; (key, sent, found): {differing[:5]}")


def overlay(expected: array[int], *later: array[int]) -> None:
    """Overwrite `expected` with the later record numbers of each key."""
    for numbers in later:
        for key, number in enumerate(numbers):
            if number != NEVER:
                expected[key] = number


class _Watch:
    """The memory and CPU of a broker's process and of its children, between `begin` and `end`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, float] = {}
        self._cpu: dict[int, tuple[float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_now_and_then)

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def begin(self) -> None:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # the peak counts from here
        self._look()
        self._cpu = {pid: (now, now) for pid, (_, now) in self._cpu.items()}  # a child that comes later counts from its start
        self._thread.start()

    def end(self) -> None:
        self._look()
        self._ended.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        """The CPU of all processes. The broker's includes the work for its clients."""
        return sum(last - first for first, last in self._cpu.values())

    def peaks_mb(self) -> list[float]:
        """The broker's, then its children's, the largest first."""
        children = sorted((peak for pid, peak in self._peaks.items() if pid != self._pid), reverse=True)
        return [self._peaks.get(self._pid, 0.0), *children]

    def _look_now_and_then(self) -> None:
        while not self._ended.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        children = [path.read_text().split() for path in Path(f"/proc/{self._pid}/task").glob("*/children")]
        for pid in (self._pid, *map(int, chain.from_iterable(children))):
            try:
                self._peaks[pid] = peak_resident_megabytes(pid)
                now = cpu_seconds(pid)
            except (OSError, KeyError):
                continue  # it has ended
            self._cpu[pid] = (self._cpu.get(pid, (0.0,))[0], now)
