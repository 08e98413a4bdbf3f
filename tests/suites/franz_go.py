"""franz-go's own test of transactions, TestTxnEtl, unmodified, against a broker or three: `python -m tests.suites.franz_go [--records N]`.

Six groups, of both protocols and with static members, copy a topic from transaction to transaction, each by consumers that come and go. The
module that Go's proxy has holds the tests; they are compiled once per machine. BARNABAS_TEST_SERVER=kafka takes brokers of Apache Kafka.
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
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.go_programs import missing_go
from tests.support.process import cache_dir
from tests.support.requirements import require

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
TEST = "TestTxnEtl"
RECORDS = 500_000
"""As many as franz-go's own CI has. A transaction of the first producer has 10,000."""
DOWNLOAD_TIMEOUT_S = 300
COMPILE_TIMEOUT_S = 900
TEST_MAX_S = 1_800


def compiled_tests() -> Path:
    """The folder of franz-go's client, with its tests compiled as `kgo.test` in it. Ends the test without Go."""
    require(missing_go())
    target = cache_dir() / f"franz-go-{VERSION}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            sources = Path(scratch) / "sources"
            shutil.copytree(_download(Path(scratch)), sources, copy_function=shutil.copyfile)
            command = ["go", "test", "-c", "-o", "pkg/kgo/kgo.test", "./pkg/kgo"]
            done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
            assert done.returncode == 0, done.stderr
            try:
                sources.rename(target)
            except OSError:  # another run was faster
                if not target.is_dir():
                    raise
    return target / "pkg/kgo"


def _download(scratch: Path) -> Path:
    """Where Go's client keeps the module, which nobody may write to."""
    command = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def run(tests: Path, node_count: int, records: int, directory: Path) -> dict[str, str]:
    """What became of the test and of its parts, by name: PASS, FAIL or SKIP. Its log is `test.log` in `directory`."""
    kind = os.environ.get("BARNABAS_TEST_SERVER", "barnabas")
    log = directory / "test.log"
    with Cluster(directory / "cluster", [kind] * node_count) as cluster, log.open("wb") as output:
        environment = {
            **os.environ,
            "KGO_SEEDS": cluster.bootstrap,
            "KGO_TEST_RF": str(node_count),
            "KGO_TEST_RECORDS": str(records),
            "KGO_LOG_LEVEL": "none",
        }
        subprocess.run(
            [str(tests / "kgo.test"), f"-test.run=^{TEST}$", "-test.v", f"-test.timeout={TEST_MAX_S}s"],
            cwd=tests, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            timeout=TEST_MAX_S, check=False,
        )  # fmt: skip
    text = log.read_text(errors="replace")
    results = {name: state for state, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, flags=re.MULTILINE)}
    assert TEST in results, text[-8_000:]
    return results


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.franz_go", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help="in the topic that is copied (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=3, help="brokers, each with a replica (default: %(default)s)")
    arguments = parser.parse_args(words)
    directory = Path(tempfile.mkdtemp(prefix="franz-go-suite-"))
    results = run(compiled_tests(), arguments.nodes, arguments.records, directory)
    for name, state in results.items():
        print(f"{name}: {state}")
    if any(state != "PASS" for state in results.values()):
        print(f"logs are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
