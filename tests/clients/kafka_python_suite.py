"""kafka-python's own integration tests, as its source distribution has them, against a running broker.

The source distribution of the version that is installed comes from the package registry, once per machine. It lacks two files of its
`test` package, which are put there: `__init__.py`, and `service.py`, which starts brokers and of which a broker that runs already needs
nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.support.process import ServerProcess, cache_dir

DOWNLOAD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 280
BROKER_VERSION = "4.3"
"""What this version of the library makes of the APIs that a broker tells; the suite skips tests of newer ones."""
SETTINGS = {
    "node.id": "0",  # the suite assigns partitions to it
    "num.partitions": "4",
    "group.min.session.timeout.ms": "3000",
}
"""What the suite expects of a broker, as it would have started one."""

SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    def __init__(self, args, env):
        raise RuntimeError("the broker runs already")
"""


def suite_dir() -> Path:
    """The unpacked source distribution, downloaded at the first call on this machine."""
    name = f"kafka_python-{version('kafka-python')}"
    target = cache_dir() / name
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            _download(Path(scratch))
            unpacked = Path(scratch) / name
            (unpacked / "test/__init__.py").touch()
            (unpacked / "test/service.py").write_text(SERVICE)
            try:
                unpacked.rename(target)
            except OSError:  # another run was faster
                if not target.is_dir():
                    raise
    return target


def _download(scratch: Path) -> None:
    words = ["--no-deps", "--no-binary", ":all:", "--quiet", "--dest", str(scratch), f"kafka-python=={version('kafka-python')}"]
    subprocess.run([sys.executable, "-m", "pip", "download", *words], check=True, timeout=DOWNLOAD_TIMEOUT_S)
    (archive,) = scratch.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(scratch, filter="data")


def run_suite(server: ServerProcess, file_name: str, deselected: list[str]) -> tuple[int, str]:
    """How many tests of that file passed, and what pytest printed. AssertionError if one failed.

    A test that fails is repeated once, alone. The library can lose a subscription that is made while its first metadata request is on its
    way: the answer to that request counts as news of the new topics (a remark in `ClusterMetadata.set_topics` says so), and the next
    request is due in five minutes. A test of the suite waits 30 s.
    """
    path = f"test/integration/{file_name}"
    done = _run_pytest(server, [f"--deselect={path}::{test}" for test in deselected] + [path])
    passed_count = _count_passed(done.stdout)
    if failed := re.findall(r"^FAILED (\S+)", done.stdout, flags=re.MULTILINE):
        again = _run_pytest(server, failed)
        assert again.returncode == 0, (done.stdout + again.stdout + again.stderr)[-12_000:]
        passed_count += _count_passed(again.stdout)
    else:
        assert done.returncode == 0, (done.stdout + done.stderr)[-12_000:]
    return passed_count, done.stdout


def _run_pytest(server: ServerProcess, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KAFKA_URI": f"PLAINTEXT://{server.bootstrap}",
        "KAFKA_VERSION": BROKER_VERSION,
        "KAFKA_ROOT": str(suite_dir()),  # of which nothing is needed but that it exists
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-p", "pytest_timeout", *words],
        cwd=suite_dir(),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def _count_passed(output: str) -> int:
    found = re.search(r"(\d+) passed", output)
    assert found is not None, output
    return int(found[1])
