"""The checks of `make package`, on the wheel and the environment that the other tests have. twine's own is left to the command."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from broker.server.version import VERSION
from tests.packaging.package import PackageError, build, check_archive, check_command, differences
from tests.support.sources import ROOT


@pytest.mark.long("builds twice")
def test_the_source_archive_gives_the_same_wheel(tmp_path: Path) -> None:
    wheel, archive = build(ROOT, tmp_path / "dist")

    assert check_archive(archive, wheel, tmp_path / "unpacked").name == wheel.name


def test_files_that_are_missing_or_differ_are_named(tmp_path: Path) -> None:
    for name, files in {"first": {"a.py": "1", "b.py": "1", "c.py": "1"}, "second": {"a.py": "1", "b.py": "2", "d.py": "1"}}.items():
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            for file, text in files.items():
                packed.writestr(file, text)

    assert differences(tmp_path / "first", tmp_path / "second") == ["b.py", "c.py", "d.py"]


@pytest.mark.long("starts the installed broker")
def test_the_installed_command_serves(environment: Path) -> None:
    assert check_command(environment) == VERSION


def test_a_command_that_says_another_version_is_refused(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "barnabas"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho barnabas 0.0.9\n")
    command.chmod(0o755)

    with pytest.raises(PackageError, match=r"says 'barnabas 0\.0\.9'"):
        check_command(tmp_path)


def test_a_broker_that_fails_to_serve_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.packaging.package.VERSION", "1.0")
    command = tmp_path / "bin" / "barnabas"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\n[ "$1" = --version ] && echo barnabas 1.0 && exit\nexit 1\n')
    command.chmod(0o755)

    with pytest.raises(PackageError, match="said '' and ended with 1"):
        check_command(tmp_path)
