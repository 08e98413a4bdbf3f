"""What a person reads when Spark does not start or gives up; no Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from pipeline.commands import innermost_sentence
from pipeline.session import SessionError, one_sentence, require_java


def java_in(folder: Path, version: str = "17.0.15") -> Path:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def is_java_found(**environ: str) -> bool:
    try:
        require_java(environ)
    except SessionError:
        return False
    return True


def test_java_is_looked_for_where_spark_does(tmp_path: Path) -> None:
    on_path, home = java_in(tmp_path / "path"), java_in(tmp_path / "home" / "bin").parent

    assert is_java_found(PATH=f"/nowhere:{on_path}")
    assert is_java_found(PATH="", JAVA_HOME=str(home))
    assert is_java_found(PATH=str(on_path), JAVA_HOME="")
    assert not is_java_found(PATH="/nowhere", JAVA_HOME=str(on_path))


def test_without_java_the_error_says_how_to_install_it() -> None:
    with pytest.raises(SessionError, match=r"needs Java 17 or 21, and there is none on the PATH.* apt-get install"):
        require_java({"PATH": "/nowhere"})


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    """Spark's scripts do not fall back to the PATH."""
    with pytest.raises(SessionError, match="JAVA_HOME names /nowhere"):
        require_java({"PATH": str(java_in(tmp_path / "path")), "JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, version: str, major: int) -> None:
    """Spark's launcher would print a stack trace about a class file's version."""
    folder = java_in(tmp_path / "old", version)

    with pytest.raises(SessionError, match=f"{folder}/java is Java {major};"):
        require_java({"PATH": str(folder)})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: file:/nodir. SQLSTATE: 42K03\nat x", "Path does not exist: file:/nodir."),
        (
            "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: Unclosed character class SQLSTATE: XXKST",
            "Unclosed character class",
        ),
        ("Query [id = 1-2, runId = 3-4] terminated with exception: Gone", "Gone"),
        ("\norg.apache.kafka.common.KafkaException: Failed to construct\n\tat y", "Failed to construct"),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to write: Traceback (most recent call last):\n  File 'x', line 1, in y\n    z: Error: w\n"
            "barnabas.spark.errors.BrokerError: no broker answers\n SQLSTATE: 38000",
            "no broker answers",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited.", "Java gateway process exited."),
    ],
)
def test_an_error_is_cut_down_to_its_sentence(text: str, sentence: str) -> None:
    assert one_sentence(text) == sentence


def test_an_error_that_is_only_a_name_says_of_what_kind_it_is() -> None:
    assert innermost_sentence(PySparkException("nowhere")) == "PySparkException: nowhere"
