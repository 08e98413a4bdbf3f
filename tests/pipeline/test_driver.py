"""What is passed on of Java's stderr; no Java is started."""

from __future__ import annotations

import os

import pytest

from pipeline.driver import INCUBATOR_WARNING, _pass_on


def test_all_that_java_says_is_passed_on_but_the_warning_of_incubator_modules(capfd: pytest.CaptureFixture[str]) -> None:
    read_end, write_end = os.pipe()
    os.write(
        write_end, INCUBATOR_WARNING + b"\nError: Could not find or load main class\n" + INCUBATOR_WARNING + b", other\nno end of line"
    )
    os.close(write_end)

    _pass_on(read_end)

    assert capfd.readouterr().err == f"Error: Could not find or load main class\n{INCUBATOR_WARNING.decode()}, other\nno end of line"
