"""The examples of README, docs/clients.md and docs/ci.md, run as they stand there against a broker with the embedded defaults (only the
port is another)."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pipeline.connector import connector_coordinates, connector_settings
from tests.pipeline.spark_support import needs_java
from tests.support.broker import BrokerProcess
from tests.support.kafka import class_path, kafka_jars
from tests.support.process import cache_dir

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/clients.md", "docs/ci.md")
BLOCKS = [found for page in PAGES for found in re.findall(r"```(\w+)\n(.*?)```", (CHECKOUT / page).read_text(), re.DOTALL)]
TIMEOUT_S = 120
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("readme"))
    process.settings = {}
    process.start()
    yield process
    process.stop()


def block(language: str, containing: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    return str(found)


def run(command: list[str], directory: Path, env: dict[str, str] | None = None) -> str:
    outcome = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **(env or {})}, check=False
    )
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-4000:]
    return outcome.stdout


@pytest.mark.parametrize(
    ("containing", "printed"), [("from kafka import", "b'hello'"), ("aiokafka", "b'1'"), ("import Consumer, Producer", "b'a' b'alpha'")]
)
def test_python_examples(broker: BrokerProcess, tmp_path: Path, containing: str, printed: str) -> None:
    script = tmp_path / "example.py"
    script.write_text(block("python", containing).replace("localhost:9092", broker.bootstrap))

    assert run([sys.executable, str(script)], tmp_path).strip() == printed


def test_example_of_a_broker_in_a_test(tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block("python", "barnabas.Broker"))

    assert run([sys.executable, str(script)], tmp_path, {"PYTHONPATH": str(CHECKOUT)}).strip() == "0"


def test_java_example(broker: BrokerProcess, tmp_path: Path) -> None:
    kafka_jars()
    source = tmp_path / "Hello.java"
    source.write_text(block("java", "class Hello").replace("localhost:9092", broker.bootstrap))

    assert "from Java" in run(["java", "-cp", class_path(), str(source)], tmp_path)


def test_command_line_example(broker: BrokerProcess, tmp_path: Path) -> None:
    kafka_jars()
    for name, main_class in TOOLS.items():
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp "{class_path()}" {main_class} "$@"\n')
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    script = block("sh", "kafka-topics.sh").replace("localhost:9092", broker.bootstrap)

    printed = run(["sh", "-e", "-c", script], tmp_path, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    assert "first" in printed


def test_ci_example(tmp_path: Path) -> None:
    """`barnabas` is this checkout's; the script ends it itself."""
    command = tmp_path / "barnabas"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{CHECKOUT}" exec "{sys.executable}" -m broker.cli.main "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    script = block("sh", "ready.txt")

    printed = run(["sh", "-e", "-c", script], tmp_path, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    assert re.fullmatch(r"tests may use localhost:[1-9][0-9]+", printed.strip())


@pytest.mark.spark
@needs_java()
def test_spark_example(broker: BrokerProcess, tmp_path: Path) -> None:
    """The connector comes from the tests' cache, where its coordinates are those that the page names."""
    code = block("python", "pyspark").replace("localhost:9092", broker.bootstrap)
    packages = re.compile(r'\.config\("spark\.jars\.packages", connector\)')
    assert packages.search(code)
    script = tmp_path / "example.py"
    script.write_text(packages.sub('.config("spark.app.name", connector)', code) + "print(spark.sparkContext.appName)\n")
    settings = connector_settings(pyspark.__version__, cache_dir() / "barnabas")
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    printed = run([sys.executable, str(script)], tmp_path, {"SPARK_CONF_DIR": str(tmp_path)})

    assert printed.split()[-2:] == ["100", connector_coordinates(pyspark.__version__)]
