"""The idle share of the loop, the volumes of log directories, and what the process wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.observability.metrics import Metrics
from broker.server.node_gauges import SinceLastScrape, add_node_gauges
from storage.disk import SYSTEM_DISK
from storage.log_directory import LogDirectory
from tests.broker.observability.test_metrics import rendered
from tests.support.clock import ManualClock

IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"


def test_the_growth_of_a_counter_is_that_between_scrapes_which_are_a_second_apart() -> None:
    clock, counter = ManualClock(), [100.0]
    growth = SinceLastScrape(clock, lambda: counter[0])
    assert growth.per_ms() == 0

    counter[0] = 700.0
    clock.advance(2_000)
    assert growth.per_ms() == 0.3
    counter[0] = 900.0
    clock.advance(999)
    assert growth.per_ms() == 0.3  # another scraper's, just after it
    clock.advance(1)
    assert growth.per_ms() == 0.2


def test_the_loop_is_idle_while_its_thread_takes_no_cpu_time(tmp_path: Path) -> None:
    clock, metrics = ManualClock(), Metrics()
    add_node_gauges(metrics, clock=clock, disk=SYSTEM_DISK, directories=[LogDirectory(tmp_path, SYSTEM_DISK)])

    clock.advance(2_000)

    idle = rendered(metrics)
    assert idle[IDLE] == idle["kafka_network_socketserver_networkprocessoravgidle_percent"]
    assert 0 <= idle[IDLE] <= 1


def test_a_failed_log_directory_is_counted_and_its_volume_is_not_asked(tmp_path: Path) -> None:
    disk, metrics = FailingDisk(), Metrics()
    directories = [LogDirectory(tmp_path / name, SYSTEM_DISK) for name in ("a", "b", "c")]
    for directory in directories[:2]:
        directory.path.mkdir()
    add_node_gauges(metrics, clock=ManualClock(), disk=disk, directories=directories)  # type: ignore[arg-type]
    directories[0].is_offline = True

    values = rendered(metrics)

    a, b, c = (str(directory.path) for directory in directories)
    assert values["kafka_log_logmanager_offlinelogdirectorycount"] == 1
    assert values[f'kafka_log_logmanager_logdirectoryoffline{{logdirectory="{a}"}}'] == 1
    assert values[f'kafka_log_logmanager_logdirectoryoffline{{logdirectory="{b}"}}'] == 0
    assert disk.asked == [b, c]
    assert (
        0
        < values[f'barnabas_log_directory_usable_bytes{{logdirectory="{b}"}}']
        <= values[f'barnabas_log_directory_total_bytes{{logdirectory="{b}"}}']
    )
    assert f'barnabas_log_directory_usable_bytes{{logdirectory="{c}"}}' not in values  # its disk fails
    assert not any("linux_disk" in name for name in values)


class FailingDisk:
    """The machine's, without /proc, as where there is no Linux; it notes whose volume is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def open(self, path: str, flags: int) -> int:
        raise FileNotFoundError(path)

    def statvfs(self, path: str) -> Any:
        self.asked.append(path)
        return SYSTEM_DISK.statvfs(path)
