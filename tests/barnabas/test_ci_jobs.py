"""The jobs of docs/ci.md: their own commands, in order, as a runner runs them, in a project whose tests ask the broker for its versions.

`uses:` steps are the runner's, and the wheel is installed already. npm and go are the machine's; of Maven, which would load its plugins
from the network, only the name is there: what it gets is what is tested.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.installed import CHECKOUT, TIMEOUT_S, Project

PAGE = (CHECKOUT / "docs" / "ci.md").read_text()
DOCUMENTS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
JOBS = {name: job for document in DOCUMENTS for name, job in document.get("jobs", {}).items()}
(GITLAB,) = [document["test"] for document in DOCUMENTS if "test" in document]

# An ApiVersions request, version 0, by the tests of the projects: it is answered with its correlation id, 7.
REQUEST = bytes.fromhex("0000000a0012000000000007ffff")
NODE_TEST = """
const [host, port] = process.env.BOOTSTRAP_SERVERS.split(":");
require("node:test").test("the broker answers", (t, done) => {
  const socket = require("node:net").connect(Number(port), host, () => socket.write(Buffer.from("%s", "hex")));
  socket.once("data", (answer) => { socket.end(); done(answer.readInt32BE(4) === 7 ? null : new Error("no answer")); });
});
"""
GO_TEST = """package orders

import (
	"encoding/hex"
	"io"
	"net"
	"os"
	"testing"
)

func TestTheBrokerAnswers(t *testing.T) {
	request, _ := hex.DecodeString("%s")
	socket, err := net.Dial("tcp", os.Getenv("BOOTSTRAP_SERVERS"))
	if err != nil {
		t.Fatal(err)
	}
	socket.Write(request)
	answer := make([]byte, 8)
	if _, err := io.ReadFull(socket, answer); err != nil || answer[7] != 7 {
		t.Fatal("no answer", err)
	}
}
"""
MVN = """#!/bin/sh
[ "$*" = "--batch-mode test" ] && exec python3 -c '
import os, socket
host, port = os.environ["BOOTSTRAP_SERVERS"].split(":")
with socket.create_connection((host, int(port))) as peer:
    peer.sendall(bytes.fromhex("%s"))
    assert peer.recv(8)[7] == 7
print("BUILD SUCCESS")
'
"""


class Runner:
    """Runs steps in the project's folder; what a step writes to GITHUB_ENV is in the environment of the later ones."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.commands = project.directory / "commands"
        self.commands.mkdir()
        self._variables = project.directory / "github_env"
        self._variables.touch()

    def run(self, script: str) -> str:
        """What it printed. As GitHub does it: bash -e, and its background processes live on."""
        noted = dict(line.split("=", 1) for line in self._variables.read_text().splitlines())
        path = f"{self.commands}:{Path(self.project.python).parent}:{os.environ['PATH']}"
        finished = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.project.directory,
            env={**self.project.environ(), "GITHUB_ENV": str(self._variables), "PATH": path, **noted},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def end(self) -> None:
        """What GitHub does with processes that are left at a job's end."""
        ready = self.project.directory / "broker.json"
        if ready.is_file() and ready.read_text():
            os.kill(json.loads(ready.read_text())["pid"], signal.SIGTERM)


@pytest.fixture
def runner(project: Project) -> Iterator[Runner]:
    running = Runner(project)
    yield running
    running.end()


def own_steps(job: dict[str, Any]) -> list[str]:
    """The commands that a job runs where all is well, but for the one that installs the wheel."""
    steps = [step["run"] for step in job["steps"] if "run" in step and "if" not in step]
    assert steps[0] == "pip install ./wheels/barnabas-*.whl"
    return steps[1:]


def write_project(project: Project) -> None:
    packages = {"name": "orders", "version": "1.0.0"}
    project.write("package.json", json.dumps({**packages, "scripts": {"test": "node --test"}}))
    project.write("package-lock.json", json.dumps({**packages, "lockfileVersion": 3, "packages": {"": packages}}))
    project.write("orders.test.js", NODE_TEST % REQUEST.hex())
    project.write("go.mod", "module example.com/orders\n\ngo 1.21\n")
    project.write("orders_test.go", GO_TEST % REQUEST.hex())


@pytest.mark.parametrize(
    ("name", "tool", "passed"), [("node", "npm", r"pass 1\b"), ("go", "go", r"^ok\b.*orders"), ("java", None, "BUILD SUCCESS")]
)
def test_job(runner: Runner, name: str, tool: str | None, passed: str) -> None:
    if tool is not None and shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing")
    write_project(runner.project)
    if tool is None:
        (runner.commands / "mvn").write_text(MVN % REQUEST.hex())
        (runner.commands / "mvn").chmod(0o755)

    printed = [runner.run(step) for step in own_steps(JOBS[name])]

    assert re.search(passed, printed[-1])


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing")
def test_gitlab_job(runner: Runner) -> None:
    """Its two parts are one script, without what installs Python and the wheel."""
    write_project(runner.project)

    printed = runner.run("\n".join([*GITLAB["before_script"][2:], *GITLAB["script"]]))

    assert re.search(r"pass 1\b", printed)


def test_a_broker_that_does_not_start_ends_the_step(runner: Runner) -> None:
    start = own_steps(JOBS["node"])[0].replace("num.partitions=3", "num.partitions=no")

    with pytest.raises(AssertionError, match=r"num\.partitions"):
        runner.run(start)
