"""The built wheel in an environment of its own: what it adds, and that it serves."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.support.installed import CHECKOUT, TIMEOUT_S, InstalledBroker, site_packages


@pytest.fixture
def installed_broker(environment: Path, tmp_path: Path) -> Iterator[InstalledBroker]:
    broker = InstalledBroker(environment, tmp_path)
    yield broker
    broker.kill()


def test_wheel_adds_its_name_those_of_the_data_sources_and_one_command(environment: Path) -> None:
    names = {path.name for path in site_packages(environment).iterdir()} - {"borrowed.pth", "__pycache__"}
    commands = {path.name for path in (environment / "bin").iterdir() if "python" not in path.name and "ctivate" not in path.name}

    assert {name for name in names if not name.endswith(".dist-info")} == {"barnabas", "pyspark_barnabas.py", "pyspark_barnabas_log.py"}
    assert len(names) == 4 and commands == {"barnabas"}


def test_wheel_holds_every_module_of_the_checkout(wheel: Path) -> None:
    carried = set(zipfile.ZipFile(wheel).namelist())

    for path in (CHECKOUT / "barnabas" / "cli").rglob("*.py"):
        assert str(path.relative_to(CHECKOUT)) in carried
    for folder in ("broker", "config", "pipeline", "protocol", "storage"):
        for path in (CHECKOUT / folder).rglob("*.py"):
            assert f"barnabas/{path.relative_to(CHECKOUT)}" in carried
    assert {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "barnabas" / "spark").glob("[!m]*/*.py")} <= carried
    assert {f"barnabas/{path.name}" for path in (CHECKOUT / "barnabas").glob("*.py")} <= carried
    assert {"barnabas/config/server.properties", "barnabas/py.typed"} <= carried


def test_users_own_folders_neither_break_the_command_nor_are_broken(environment: Path, tmp_path: Path) -> None:
    """A project with a `config` package of its own, run from its own directory."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "__init__.py").write_text("MINE = 1")
    python = str(environment / "bin" / "python")

    version = subprocess.run([python, "-m", "barnabas", "--version"], cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S, check=True)
    mine = subprocess.run(
        [python, "-c", "import barnabas, config; print(config.MINE)"], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )

    assert version.stdout.startswith(b"barnabas ") and mine.stdout == b"1\n"


def test_the_data_sources_need_no_name_of_ours_but_its_own(environment: Path, tmp_path: Path) -> None:
    """A project with modules that are named as our folders are. pyspark and pyarrow are the test environment's."""
    for name in ("broker", "config", "pipeline", "protocol", "storage"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('a module of the user')")
    python = str(environment / "bin" / "python")
    code = "import pyspark_barnabas as a, pyspark_barnabas_log as b; print(a.DefaultSource.name(), b.DefaultSource.name())"

    found = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)

    assert found.stdout == "barnabas barnabas-log\n"


def test_installed_command_serves_and_takes_a_record(installed_broker: InstalledBroker) -> None:
    installed_broker.start()

    producer = KafkaProducer(bootstrap_servers=installed_broker.bootstrap, acks="all")
    metadata = producer.send("packaged", b"value").get(30)
    producer.close()
    listing = [installed_broker.barnabas, "topic", "list", "packaged", "-o", "json", "-b", installed_broker.bootstrap]
    listed = subprocess.run(listing, capture_output=True, timeout=TIMEOUT_S, check=True).stdout

    assert metadata.offset == 0
    assert json.loads(listed)[0]["records"] == 1
    assert installed_broker.stop() == 0
