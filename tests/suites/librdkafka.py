"""librdkafka's own tests of transactions against three brokers: `python -m tests.suites.librdkafka [--secured] [--source DIR] [TEST…]`.

The sources, with their tests, are in the crate rdkafka-sys, which Cargo fetches once per machine; `--source` names another checkout of
them. They are unmodified but for 0129: there is one segment.bytes that no Apache Kafka takes since 4.0 (KIP-1030), and which librdkafka
itself has raised since. With `--secured` the brokers are what `barnabas secure init` makes, and the tests log in as its administrator, by
SASL_SSL. BARNABAS_TEST_SERVER=kafka takes brokers of Apache Kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.kafka import KAFKA_VERSION
from tests.support.process import cache_dir
from tests.support.requirements import require
from tests.support.secured_cluster import SecuredCluster

CRATE = ("rdkafka-sys", "4.10.0", "2.12.1")
"""Its name and version, and the version of librdkafka that is in it."""
TESTS = ("0103", "0129")
FLAGS = ("--enable-ssl", "--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-lz4-ext", "--disable-regex-ext")
BROKER_SETTINGS = {"num.partitions": "4", "default.replication.factor": "3"}
"""What librdkafka's scenario "default" has."""
REFUSED_SEGMENT, SMALLEST_SEGMENT = '"segment.bytes", "20000"', '"segment.bytes", "1048576"'
TOOLS = ("cargo", "make", "g++")
SSL_HEADER = Path("/usr/include/openssl/ssl.h")
FETCH_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 1_200
TEST_MAX_S = 900
COUNT_OF_JOBS = 2
PATIENCE = 4
"""By how much the tests' own limits of time are multiplied, which suit a machine that does nothing else."""
MANIFEST = """
[package]
name = "librdkafka-sources"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
{crate} = "={version}"
"""


def missing_tools() -> str | None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    missing += [] if SSL_HEADER.exists() else [str(SSL_HEADER)]
    return f"missing: {', '.join(missing)}; install them with: sudo apt-get install -y cargo make g++ libssl-dev" if missing else None


def built_sources(source: Path | None, directory: Path) -> Path:
    """A folder with the compiled library and tests: of `source`, in `directory`, or of the crate's, once per machine."""
    require(missing_tools())
    if source is not None:
        target = directory / "sources"
        shutil.copytree(source, target)
        _build(target)
        return target
    target = cache_dir() / f"librdkafka-{CRATE[2]}-ssl"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            sources = _fetch(Path(scratch))
            _build(sources)
            sources.rename(target)
    return target


def _fetch(scratch: Path) -> Path:
    (scratch / "Cargo.toml").write_text(MANIFEST.format(crate=CRATE[0], version=CRATE[1]))
    (scratch / "lib.rs").touch()
    subprocess.run(["cargo", "vendor", "--quiet"], cwd=scratch, check=True, timeout=FETCH_TIMEOUT_S, stdout=subprocess.DEVNULL)
    return scratch / "vendor" / CRATE[0] / "librdkafka"


def _build(sources: Path) -> None:
    test = sources / "tests/0129-fetch_aborted_msgs.c"
    test.write_text(test.read_text().replace(REFUSED_SEGMENT, SMALLEST_SEGMENT))
    jobs = f"-j{COUNT_OF_JOBS}"
    steps = (["./configure", *FLAGS], ["make", jobs, "libs"], ["make", jobs, "-C", "tests", "test-runner"])
    for step in steps:
        done = subprocess.run(
            step, cwd=sources, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{' '.join(step)}\n{(done.stdout + done.stderr)[-4_000:]}"


def run(sources: Path, tests: Sequence[str], directory: Path, *, is_secured: bool = False) -> dict[str, str]:
    """What became of each test that begins with one of these names, and of those of its subtests that were skipped: PASSED, FAILED or
    SKIPPED. Each has a log in `directory`."""
    kind = os.environ.get("BARNABAS_TEST_SERVER", "barnabas")
    results: dict[str, str] = {}
    with ExitStack() as stack:
        if is_secured:
            secured = SecuredCluster(directory / "cluster", 3, kind=kind, settings={"num.partitions": BROKER_SETTINGS["num.partitions"]})
            client = stack.enter_context(secured).administrator().librdkafka()
        else:
            cluster = stack.enter_context(Cluster(directory / "cluster", [kind] * 3, settings=BROKER_SETTINGS))
            client = {"bootstrap.servers": cluster.bootstrap}
        config = directory / "test.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in {**client, "test.timeout.multiplier": PATIENCE}.items()))
        for test in tests:
            results |= _run_test(sources, test, config, directory)
    return results


def _run_test(sources: Path, test: str, config: Path, directory: Path) -> dict[str, str]:
    report, log = directory / f"{test}.json", directory / f"{test}.log"
    environment = {
        **os.environ,
        "RDKAFKA_TEST_CONF": str(config),
        "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TEST_REPORT": str(report),
        "TESTS": test,
    }
    with log.open("wb") as output:
        subprocess.run(
            [str(sources / "tests/test-runner"), "-p1"],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            timeout=TEST_MAX_S, check=False,
        )  # fmt: skip
    return _read_results(test, report, log.read_text(errors="replace"))


def _read_results(test: str, report: Path, log: str) -> dict[str, str]:
    assert report.exists(), log[-4_000:]
    reported = json.loads(report.read_text())["tests"]  # all that there are
    found = {name: each["state"] for name, each in reported.items() if name.startswith(test)}
    assert found, log[-4_000:]
    return found | dict.fromkeys(re.findall(r"\[ (\S+?):\d+: SKIP", log), "SKIPPED")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.librdkafka", description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", metavar="TEST", help=f"its number, by default {' and '.join(TESTS)}")
    parser.add_argument("--source", type=Path, help="a checkout of librdkafka, instead of the crate's")
    parser.add_argument("--secured", action="store_true", help="by TLS and SCRAM, with ACLs")
    arguments = parser.parse_args(words)
    directory = Path(tempfile.mkdtemp(prefix="librdkafka-suite-"))
    sources = built_sources(arguments.source, directory)
    results = run(sources, arguments.tests or TESTS, directory, is_secured=arguments.secured)
    for name, state in results.items():
        print(f"{name}: {state}")
    if any(state != "PASSED" for state in results.values()):
        print(f"logs are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
