"""What `make package-spark` runs and refuses, without Spark. The command itself takes minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.packaging.on_spark import ORDERS, clean_environment, judge, program
from tests.packaging.package import PackageError
from tests.support.sources import ROOT

ENVIRONMENT = Path("/environment")
WORKERS = [["/environment/bin/python", "/environment/lib/barnabas", "/environment/pyspark.zip", f"/work-{n}/app-1/{n}"] for n in range(2)]


def facts() -> dict[str, Any]:
    return {
        "loud": sorted(f"ORDER {number}" for number in range(ORDERS)),
        "files": sorted(f"order {number}" for number in range(ORDERS)),
        "numbers": sorted(str(number) for number in range(1000)),
        "has_connector": False,
        "workers": WORKERS,
    }


def test_the_program_has_the_examples_of_the_documentation() -> None:
    text = program()

    compile(text, "program.py", "exec")
    assert all(
        part in text for part in ('.writeStream.format("barnabas")', 'spark.read.format("barnabas-log")', "barnabas.spark.prepare()")
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loud": ["ORDER 1"]}, "of loud there are 1 rows"),
        ({"has_connector": True}, "the class path"),
        ({"workers": [WORKERS[0], WORKERS[0]]}, "two tasks at once ran on 1 workers"),
        ({"workers": [WORKERS[0], [*WORKERS[1][:2], str(ROOT), WORKERS[1][3]]]}, "PYTHONPATH="),
        ({"workers": [WORKERS[0], ["/usr/bin/python3", *WORKERS[1][1:]]]}, "a worker runs /usr/bin/python3"),
    ],
)
def test_what_is_otherwise_is_refused(wrong: dict[str, Any], message: str) -> None:
    judge(facts(), ENVIRONMENT)  # nothing is wrong with these
    with pytest.raises(PackageError, match=message):
        judge(facts() | wrong, ENVIRONMENT)


def test_nothing_of_the_checkout_is_in_the_environment_of_sparks_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, str(ROOT))

    kept = clean_environment(tmp_path)

    assert not {"PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"} & kept.keys()
    assert kept["SPARK_CONF_DIR"] == str(tmp_path / "conf")
