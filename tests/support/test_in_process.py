"""Which tests `make check` takes, and that none of them can start a process unseen."""

from __future__ import annotations

import pytest

from tests.support.in_process import refuse_process, starts_processes
from tests.support.sources import ROOT


@pytest.mark.parametrize("file", ["storage/test_log.py", "wire/test_kio.py", "test_layering.py", "broker/replication/test_partition.py"])
def test_a_file_that_starts_nothing_is_taken(file: str) -> None:
    assert not starts_processes(ROOT / "tests" / file)


@pytest.mark.parametrize(
    "file",
    [
        "packaging/test_wheel.py",  # imports subprocess
        "support/test_cluster.py",  # by tests.support.cluster and tests.support.process
        "bench/test_compaction.py",  # by bench/
        "barnabas/test_async_broker.py",  # the brokers of the package for users
        "pipeline/test_session.py",  # Spark
    ],
)
def test_a_file_that_imports_what_starts_processes_is_left_out(file: str) -> None:
    assert starts_processes(ROOT / "tests" / file)


@pytest.mark.parametrize("event", ["os.posix_spawn", "subprocess.Popen", "os.fork"])
def test_a_started_process_is_refused(event: str) -> None:
    with pytest.raises(AssertionError, match=event):
        refuse_process(event, ("program", ["argument"]))


def test_other_events_pass() -> None:
    assert all(refuse_process(event, ()) is None for event in ("open", "socket.connect", "import"))  # type: ignore[func-returns-value]
