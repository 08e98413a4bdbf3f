"""franz-go's own test of transactions, TestTxnEtl, unmodified, against a broker or three: `python -m tests.suites.franz_go [--records N]`.

With `--secured` the brokers are what `barnabas secure init` makes. The tests, which cannot log in, connect by TLS with the nodes'
certificate then, whose user may do everything. franz-go's own tests of SCRAM (right and wrong passwords, no TLS) run too. `--all` runs
every test of its client.

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
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import ScramMechanism

from tests.support.cluster import Cluster
from tests.support.go_programs import missing_go
from tests.support.process import cache_dir
from tests.support.requirements import require
from tests.support.secured_cluster import SecuredCluster

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
TEST, ALL = "TestTxnEtl", ".*"
SCRAM_TESTS = ("TestSCRAMAuth", "TestSCRAMAuthBadCredentials")
NOT_BY_TLS = ("TestIssue769",)
"""It gives its client a dialer of its own, which franz-go refuses beside settings of TLS."""
SECURED_SETTINGS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
    "listener.name.ssl.ssl.client.auth": "required",
    "listener.name.ssl.ssl.principal.mapping.rules": r"RULE:^CN=([^,]+).*$/$1/,DEFAULT",
}
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


def run(
    tests: Path, node_count: int, records: int, directory: Path, *, names: Sequence[str] = (TEST,), is_secured: bool = False
) -> dict[str, str]:
    """What became of these tests and of their parts, by name: PASS, FAIL or SKIP. The log is `test.log` in `directory`."""
    kind = os.environ.get("BARNABAS_TEST_SERVER", "barnabas")
    if not is_secured:
        with Cluster(directory / "cluster", [kind] * node_count) as cluster:
            return _run(tests, names, directory, _environment(cluster.bootstrap, node_count, records))
    with SecuredCluster(
        directory / "cluster", node_count, kind=kind, settings=SECURED_SETTINGS, listeners=("SSL", "SASL_PLAINTEXT")
    ) as secured:
        user, password = secured.administrator().login
        secured.add_credential(user, password, ScramMechanism.SCRAM_SHA_256)
        environment = _environment(secured.addresses("SSL"), node_count, records)
        environment |= {"KGO_TEST_TLS": f"ca:{secured.authority},cert:{secured.node_keys},key:{secured.node_keys}"}
        results = _run(tests, names, directory, environment, left_out=NOT_BY_TLS)
        scram = {"KGO_TEST_SCRAM_SEEDS": secured.addresses("SASL_PLAINTEXT"), "KGO_TEST_SCRAM": f"{user}:{password}"}
        return results | _run(tests, SCRAM_TESTS, directory, environment | scram)


def _environment(bootstrap: str, node_count: int, records: int) -> dict[str, str]:
    words = {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": str(node_count), "KGO_TEST_RECORDS": str(records), "KGO_LOG_LEVEL": "none"}
    return {**os.environ, **words}


def _run(
    tests: Path, names: Sequence[str], directory: Path, environment: dict[str, str], *, left_out: Sequence[str] = ()
) -> dict[str, str]:
    log = directory / "test.log"
    skip = [f"-test.skip=^({'|'.join(left_out)})$"] if left_out else []
    with log.open("ab") as output:
        subprocess.run(
            [str(tests / "kgo.test"), f"-test.run=^({'|'.join(names)})$", *skip, "-test.v", f"-test.timeout={TEST_MAX_S}s"],
            cwd=tests, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            timeout=TEST_MAX_S, check=False,
        )  # fmt: skip
    text = log.read_text(errors="replace")
    results = {name: state for state, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, flags=re.MULTILINE)}
    assert all(name in results or name == ALL for name in names), text[-8_000:]
    return results


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.franz_go", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help="in the topic that is copied (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=3, help="brokers, each with a replica (default: %(default)s)")
    parser.add_argument("--secured", action="store_true", help="by TLS and SCRAM, with ACLs")
    parser.add_argument("--all", action="store_true", help=f"every test, not {TEST} alone")
    arguments = parser.parse_args(words)
    directory = Path(tempfile.mkdtemp(prefix="franz-go-suite-"))
    names = (ALL,) if arguments.all else (TEST,)
    results = run(compiled_tests(), arguments.nodes, arguments.records, directory, names=names, is_secured=arguments.secured)
    for name, state in results.items():
        if state != "PASS" or not arguments.all:
            print(f"{name}: {state}")
    print(", ".join(f"{count} {state}" for state, count in Counter(results.values()).items()))
    if any(state == "FAIL" or (state == "SKIP" and not arguments.all) for state in results.values()):
        print(f"logs are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
