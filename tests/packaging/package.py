"""Builds the wheel and the source archive into dist/ and checks them: `make package`.

What is checked: the metadata and the page that an index would show (twine); that a wheel built from the source archive has the same files
as the one built from the checkout; and that the wheel serves in an environment of its own, with no more than what its metadata asks for.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from broker.server.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60


class PackageError(Exception):
    """A check that has failed, in one line."""


def main() -> int:
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)  # no file of an earlier version is taken for this one's
    try:
        wheel, archive = build(ROOT, dist)
        run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(archive))
        with tempfile.TemporaryDirectory() as directory:
            check_archive(archive, wheel, Path(directory))
            check_command(_install(wheel, Path(directory) / "environment"))
    except PackageError as error:
        print(f"make package: {error}", file=sys.stderr)
        return 1
    for path in (wheel, archive):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


def build(source: Path, directory: Path) -> tuple[Path, Path]:
    """The wheel and the source archive of the tree `source`."""
    run(sys.executable, "-m", "hatchling", "build", "-d", str(directory), cwd=source)  # both, where none is named
    try:
        (wheel,), (archive,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    except ValueError as error:
        raise PackageError(f"{directory} has not one wheel and one source archive") from error
    return wheel, archive


def check_archive(archive: Path, wheel: Path, directory: Path) -> Path:
    """A wheel built from the unpacked archive, which is returned, has the files of `wheel`, byte for byte."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    (source,) = (path for path in directory.iterdir() if path.is_dir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory / "rebuilt"), cwd=source)
    (rebuilt,) = (directory / "rebuilt").glob("*.whl")
    if differing := differences(wheel, rebuilt):
        raise PackageError(f"a wheel from {archive.name} differs from {wheel.name} in {', '.join(differing[:5])}")
    return rebuilt


def differences(first: Path, second: Path) -> list[str]:
    """The files that only one of two wheels has, or that differ."""
    sums = []
    for wheel in (first, second):
        with zipfile.ZipFile(wheel) as packed:
            sums.append({entry.filename: entry.CRC for entry in packed.infolist()})
    return sorted(name for name in sums[0].keys() | sums[1].keys() if sums[0].get(name) != sums[1].get(name))


def check_command(environment: Path) -> str:
    """`barnabas` there tells its version, which is returned, serves, and ends when its standard input does."""
    barnabas = str(environment / "bin" / "barnabas")
    version = run(barnabas, "--version").strip()
    if version != f"barnabas {VERSION}":
        raise PackageError(f"the installed command says {version!r}, and the checkout is {VERSION}")
    serving = subprocess.Popen(
        [barnabas, "serve", "--ephemeral", "--log-level", "warning"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert serving.stdin is not None and serving.stdout is not None
    try:
        line = serving.stdout.readline()
        serving.stdin.close()
        code = serving.wait(START_TIMEOUT_S)
    finally:
        serving.kill()
    with contextlib.suppress(ValueError):
        if code == 0 and json.loads(line)["version"] == VERSION:
            return VERSION
    raise PackageError(f"the installed broker said {line!r} and ended with {code}")


def _install(wheel: Path, environment: Path) -> Path:
    venv.create(environment, with_pip=True)
    run(str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return environment


def run(*command: str, cwd: Path = ROOT) -> str:
    finished = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise PackageError(f"{' '.join(command[:5])} failed:\n{finished.stdout}{finished.stderr}")
    return finished.stdout


if __name__ == "__main__":
    sys.exit(main())
