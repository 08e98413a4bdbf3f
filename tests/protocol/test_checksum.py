"""CRC-32C, loaded without the rest of its package."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder

import crc32c as package
import pytest

from protocol import checksum


@pytest.mark.parametrize("data", [b"", b"123456789", bytearray(b"x" * 100_000), memoryview(bytes(range(256)))[7:99]])
def test_checksums_are_those_of_the_package(data: bytes) -> None:
    assert checksum.crc32c(data) == package.crc32c(data)
    assert checksum.crc32c(data, 77) == package.crc32c(data, 77)


def test_the_check_value_of_the_polynomial() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283


def test_the_package_is_imported_where_its_extension_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = PathFinder.find_spec

    def find_package_only(name: str, *arguments: object) -> ModuleSpec | None:
        return None if name == "crc32c._crc32c" else find_spec(name, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(PathFinder, "find_spec", find_package_only)
        without_extension = importlib.reload(checksum).crc32c
    with_extension = importlib.reload(checksum).crc32c

    assert without_extension is package.crc32c
    assert with_extension is not package.crc32c


def test_a_start_does_not_look_through_the_installed_packages() -> None:
    modules = "importlib.metadata argparse ctypes uuid prometheus_client construct"
    program = (
        f"import sys, broker.cli.main, broker.cli.serve, broker.server.process; print([m for m in '{modules}'.split() if m in sys.modules])"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
