"""What a broker alone does not load, and that the modules which stand-ins spared it are there for whoever wants them later."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.broker import BrokerProcess

CHECKOUT = Path(__file__).resolve().parents[2]
RECORDS = 1_000
PARTITIONS = 3
TIMEOUT_S = 30.0

SPARED = {
    *("ssl", "_ssl", "hashlib", "_hashlib"),  # OpenSSL
    *("urllib.parse", "ipaddress"),
    *("argparse", "tempfile", "http.server", "multiprocessing"),
    "broker.replication.isr_changes",
    "broker.controller.partition_control",
    "broker.network.client",
}
SPARED_FOLDERS = ("broker.cluster.", "broker.replication.fetcher.", "storage.compaction.")


class TalkativeBroker(BrokerProcess):
    """Its log names every module that is loaded, at any time."""

    def command(self) -> list[str]:
        interpreter, *rest = super().command()
        return [interpreter, "-v", *rest]

    def imported(self) -> set[str]:
        return set(re.findall(r"^import '([\w.]+)' #", self.log_path.read_text(), re.MULTILINE))


def run_program(*lines: str) -> str:
    program = "\n".join(("import sys", "from broker.cli.stand_ins import stand_ins", *lines))
    command = [sys.executable, "-S", "-c", program]  # -S: nothing else has loaded modules before
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_broker_alone_loads_neither_tls_nor_what_other_brokers_need(tmp_path: Path) -> None:
    broker = TalkativeBroker(tmp_path, {"num.partitions": str(PARTITIONS)})
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce("load", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("load", partition, 0) for partition in range(PARTITIONS)])
    assert len(consumer.consume(RECORDS, TIMEOUT_S)) == RECORDS
    consumer.close()
    broker.stop()

    imported = broker.imported()

    assert {"uvloop", "broker.handlers.produce", "broker.handlers.fetch"} <= imported
    assert {name for name in imported if name in SPARED or name.startswith(SPARED_FOLDERS)} == set()


def test_what_was_spared_is_there_afterwards() -> None:
    printed = run_program(
        "with stand_ins():",
        "    import asyncio, pathlib",
        "print([name for name in ('_ssl', 'ipaddress') if name in sys.modules])",
        "import ssl",
        "print(type(ssl.create_default_context()).__name__, pathlib.Path('/a b').as_uri())",
    )

    assert printed == "[]\nSSLContext file:///a%20b"


def test_a_name_that_is_not_stood_in_for_is_the_real_module_s() -> None:
    printed = run_program(
        "with stand_ins():",
        "    from urllib.parse import quote",
        "    from urllib.parse import quote_from_bytes",
        "import urllib.parse",
        "print(quote('a b'), quote_from_bytes is urllib.parse.quote_from_bytes)",
    )

    assert printed == "a%20b True"


def test_a_module_that_is_loaded_already_stays() -> None:
    printed = run_program("import ssl", "with stand_ins():", "    import ssl as again", "print(again is ssl, sys.modules['ssl'] is ssl)")

    assert printed == "True True"
