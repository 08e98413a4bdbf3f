"""The examples of docs/testing.md, run as they stand there in a project that has the wheel installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest
import yaml

from pipeline.connector import connector_coordinates, connector_settings
from tests.pipeline.spark_support import needs_java
from tests.support.installed import CHECKOUT, TIMEOUT_S, Project
from tests.support.process import cache_dir

SPARK_TIMEOUT_S = 240  # on a machine with other work

PAGE = (CHECKOUT / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
FILES = {match[1]: text for kind, text in BLOCKS if kind == "python" and (match := re.match(r"# (\S+)\n", text))}
FOR_PYTEST = ("test_orders.py", "test_async_orders.py", "test_secured.py", "test_async_failover.py", "test_transactions.py")


def block(language: str) -> str:
    (text,) = [text for kind, text in BLOCKS if kind == language]
    return str(text)


def run(project: Project, *command: str) -> str:
    """The output of a command for which the project's `barnabas` is on the path."""
    environ = {**project.environ(), "PATH": f"{Path(project.python).parent}:{os.environ['PATH']}"}
    finished = subprocess.run(
        command,
        cwd=project.directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_every_python_example_is_run_here() -> None:
    assert set(FILES) == {*FOR_PYTEST, "crash.py", "failover.py", "test_spark.py"}
    assert len(FILES) == sum(kind == "python" for kind, _ in BLOCKS)


@pytest.mark.parametrize("name", FOR_PYTEST)
def test_examples_for_pytest(project: Project, name: str) -> None:
    project.write(name, FILES[name])

    outcome = project.pytest()

    assert outcome.outcomes == {"passed": FILES[name].count("def test_")}, outcome
    assert project.leftovers() == []


@pytest.mark.parametrize("name", ["crash.py", "failover.py"])
def test_example_without_pytest(project: Project, name: str) -> None:
    project.write(name, FILES[name])

    assert run(project, project.python, name) == "b'one book'\n"
    assert project.leftovers() == []


@pytest.mark.spark
@needs_java()
def test_example_for_spark(project: Project) -> None:
    """The connector comes from the tests' cache, where its coordinates are those that the page names."""
    packages = re.compile(r'\.config\("spark\.jars\.packages", "([^"]+)"\)')
    named = packages.search(FILES["test_spark.py"])
    assert named is not None and named[1] == connector_coordinates("4.0.0")
    project.write("test_spark.py", packages.sub("", FILES["test_spark.py"]))
    settings = connector_settings(pyspark.__version__, cache_dir() / "barnabas")
    project.write("spark-defaults.conf", "".join(f"{key} {value}\n" for key, value in settings.items()))

    outcome = project.pytest(environ={"SPARK_CONF_DIR": str(project.directory)}, timeout_s=SPARK_TIMEOUT_S)

    assert outcome.outcomes == {"passed": 1}, outcome
    assert project.leftovers() == []


def test_shell_example(project: Project) -> None:
    printed = run(project, "/bin/sh", "-e", "-c", block("sh"))

    assert json.loads(printed).keys() == json.loads(block("json")).keys()
    assert project.leftovers() == []


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is missing")
def test_java_example(project: Project) -> None:
    source = project.write("WithBroker.java", block("java"))

    assert re.fullmatch(r"tests use 127\.0\.0\.1:\d+\n", run(project, "java", str(source)))
    assert project.leftovers() == []


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is missing")
def test_go_example(project: Project) -> None:
    project.write("go.mod", "module example.com/orders\n\ngo 1.21\n")
    project.write("orders_test.go", block("go"))

    assert re.search(r"tests use 127\.0\.0\.1:\d+\n", run(project, "go", "test", "-v", "./..."))
    assert project.leftovers() == []


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is missing")
def test_node_example(project: Project) -> None:
    source = project.write("orders.test.js", block("js"))

    assert re.search(r"tests use 127\.0\.0\.1:\d+\n", run(project, "node", "--test", str(source)))
    assert project.leftovers() == []


def test_workflow_is_yaml_with_the_steps_it_needs() -> None:
    steps = yaml.safe_load(block("yaml"))["jobs"]["test"]["steps"]

    assert [step.get("run", step.get("uses")).split()[0] for step in steps][-2:] == ["pip", "pytest"]


def test_settings_for_containers_are_taken(project: Project) -> None:
    """The dictionary in the prose, with another port."""
    (text,) = re.findall(r"`config=(\{[^`]*DOCKER[^`]*\})`", PAGE)
    text = text.replace("29092", "0").replace("\n ", "")

    printed = run(
        project, project.python, "-c", f"import barnabas\nwith barnabas.Broker({text}) as broker: print(broker.bootstrap_servers)"
    )

    assert printed.startswith("127.0.0.1:") and not printed.endswith(":0\n")


def test_links_lead_somewhere() -> None:
    titles = {re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)}

    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = target.partition("#")
        assert (CHECKOUT / "docs" / path).exists() and (not anchor or path or anchor in titles), target
