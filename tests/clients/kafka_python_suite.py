"""kafka-python's own integration tests, as its source distribution has them, against a running broker.

The source distribution of the version that is installed comes from the package registry, once per machine. It lacks two files of its
`test` package, which are put there: `__init__.py`, and `service.py`, which starts brokers and of which a broker that runs already needs
nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from tests.support.process import ServerProcess, cache_dir, checkout
from tests.support.secured import FILES, PASSWORD, PROTOCOLS, USER, Secured

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DOWNLOAD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 280
BROKER_VERSION = "4.3"
"""What this version of the library makes of the APIs that a broker tells; the suite skips tests of newer ones."""
SETTINGS = {
    "node.id": "0",  # the suite assigns partitions to it
    "num.partitions": "4",
    "group.min.session.timeout.ms": "3000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
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


def secured_settings(secured: Secured) -> dict[str, str]:
    """Of a broker with listeners of all protocols, and all mechanisms of which the suite has tests."""
    settings = secured.settings(sasl_enabled_mechanisms=",".join(("PLAIN", *SCRAM_MECHANISMS)))
    settings |= {"advertised.listeners": settings["listeners"]}  # a test asks whether it is set
    return SETTINGS | settings | {"allow.everyone.if.no.acl.found": "false", "super.users": f"User:{USER};User:ANONYMOUS"}


def scram_words() -> list[str]:
    """Of the format command."""
    return [word for mechanism in SCRAM_MECHANISMS for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")]


def secured_environment(secured: Secured, directory: Path) -> dict[str, str]:
    """Of a run of the suite against that broker. `directory` gets the authority's certificate by the name that the suite knows."""
    shutil.copyfile(FILES / "ca.pem", directory / "ca-cert")
    addresses = {protocol: secured.bootstrap(protocol) for protocol in PROTOCOLS}
    known = {"addresses": addresses, "user": USER, "password": PASSWORD, "directory": str(directory)}
    return {"BARNABAS_SECURED": json.dumps(known), "PYTEST_PLUGINS": "tests.clients.kafka_python_plugin"}


def run_suite(server: ServerProcess, file_name: str, deselected: list[str], secured: Mapping[str, str] | None = None) -> tuple[int, str]:
    """How many tests of that file passed, and what pytest printed. AssertionError if one failed. `secured` is the environment of a run
    over TLS and SASL.

    A test that fails is repeated once, alone. The library can lose a subscription that is made while its first metadata request is on its
    way: the answer to that request counts as news of the new topics (a remark in `ClusterMetadata.set_topics` says so), and the next
    request is due in five minutes. A test of the suite waits 30 s.
    """
    path = f"test/integration/{file_name}"
    words = {"KAFKA_URI": f"PLAINTEXT://{server.bootstrap}"} if secured is None else secured
    done = _run_pytest(words, [f"--deselect={path}::{test}" for test in deselected] + [path])
    passed_count = _count_passed(done.stdout)
    if failed := re.findall(r"^FAILED (\S+)", done.stdout, flags=re.MULTILINE):
        again = _run_pytest(words, failed)
        assert again.returncode == 0, (done.stdout + again.stdout + again.stderr)[-12_000:]
        passed_count += _count_passed(again.stdout)
    else:
        assert done.returncode == 0, (done.stdout + done.stderr)[-12_000:]
    return passed_count, done.stdout


def _run_pytest(more: Mapping[str, str], words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **more,
        "PYTHONPATH": os.pathsep.join((str(suite_dir()), str(checkout()))),  # `test` is the suite's, `tests` ours
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
