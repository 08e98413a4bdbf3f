"""The connector's coordinates and the settings that fetch it; no Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.connector import ConnectorError, connector_coordinates, connector_settings, jar_settings, remember_jars


def test_coordinates_follow_the_installed_version() -> None:
    assert connector_coordinates("4.0.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    assert connector_coordinates("4.2.0.dev1") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def test_spark_3_is_refused_by_name() -> None:
    with pytest.raises(ConnectorError, match=r"pyspark 3\.5\.1 is too old"):
        connector_coordinates("3.5.1")


def test_first_start_fetches_with_settings_and_cache_of_its_own(tmp_path: Path) -> None:
    settings = connector_settings("4.0.0", tmp_path)

    assert settings["spark.jars.packages"] == connector_coordinates("4.0.0")
    assert 'm2compatible="true"' in Path(settings["spark.jars.ivySettings"]).read_text()
    assert Path(settings["spark.jars.ivy"]).is_relative_to(tmp_path)


def test_later_starts_take_the_remembered_jars(tmp_path: Path) -> None:
    jar = tmp_path / "connector.jar"
    jar.touch()
    connector_settings("4.0.0", tmp_path)

    remember_jars("4.0.0", tmp_path, [f"file://{jar}"])

    assert connector_settings("4.0.0", tmp_path) == {"spark.jars": str(jar)}
    jar.unlink()
    assert "spark.jars.packages" in connector_settings("4.0.0", tmp_path)


def test_jars_of_a_folder_are_all_taken(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "note.txt"):
        (tmp_path / name).touch()

    assert jar_settings([str(tmp_path), "/x/c.jar"]) == {"spark.jars": f"{tmp_path}/a.jar,{tmp_path}/b.jar,/x/c.jar"}
    with pytest.raises(ConnectorError, match="no jars"):
        (tmp_path / "empty").mkdir()
        jar_settings([str(tmp_path / "empty")])
