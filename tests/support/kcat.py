"""kcat, an old librdkafka's command line, for the tests: the machine's own, or Debian's packages, unpacked once per machine."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.support.debian import unpacked
from tests.support.process import ServerProcess

RUN_TIMEOUT_S = 60


def kcat(server: ServerProcess, *arguments: str, stdin: str = "", expected_status: int = 0) -> str:
    """What kcat prints. Ends the test where there is neither kcat nor Debian's package client."""
    program, environment = _find()
    done = subprocess.run(
        [program, "-b", server.bootstrap, *arguments],
        input=stdin, capture_output=True, text=True, env=environment, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == expected_status, done.stdout + done.stderr
    return done.stdout if not expected_status else done.stderr


def _find() -> tuple[str, dict[str, str]]:
    """The program and its environment."""
    installed = shutil.which("kcat") or shutil.which("kafkacat")
    if installed:
        return installed, dict(os.environ)
    target = unpacked("kcat")
    libraries = ":".join(str(path.parent) for path in target.glob("usr/lib/*/librdkafka.so.1"))
    return str(target / "usr/bin/kcat"), {**os.environ, "LD_LIBRARY_PATH": libraries}
