"""`barnabas doctor`: what it says of configurations, folders and machines, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from broker.cli.doctor_findings import Finding
from broker.cli.doctor_folders import examine_folders
from broker.cli.doctor_machine import Machine, examine_machine
from config.server import ServerConfig
from storage.meta_properties import MetaProperties, write_meta_properties
from tests.support.broker import BrokerProcess
from tests.support.commands import run_here

NOW_S = 2_000_000_000.0  # later than any file of the tests


def folder_of(path: Path, node_id: int = 1, cluster_id: str = "a-cluster") -> Path:
    path.mkdir()
    write_meta_properties(path, MetaProperties(cluster_id, node_id, bytes(16)))
    return path


def machine_with(root: Path, **files: str) -> Machine:
    """A machine with these files; `__` in a name is a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root)


def examined(*folders: Path, config: ServerConfig | None = None, machine: Machine | None = None, now_s: float = NOW_S) -> list[Finding]:
    findings: list[Finding] = []
    examine_folders(list(folders), config, machine or Machine(), now_s, findings)
    return findings


def levels(findings: list[Finding], check: str) -> dict[str, str]:
    return {finding.level: finding.found for finding in findings if finding.check == check}


def doctor(*words: str) -> tuple[int, list[dict[str, str]]]:
    done = run_here("doctor", *words, "--output", "json")
    return done.returncode, json.loads(done.stdout)


def test_a_folder_of_another_node_is_a_problem_and_the_exit_code_says_so(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", node_id=7)

    status, found = doctor("--override", f"log.dirs={folder}", "--override", "node.id=1")

    assert status == 4
    assert {"check": "data folder", "level": "problem", "found": f"{folder} belongs to node 7, and node.id is 1"}.items() <= next(
        each for each in found if each["level"] == "problem" and each["check"] == "data folder"
    ).items()
    assert all(set(each) == {"check", "level", "found", "advice"} for each in found)


def test_problems_come_first_in_plain_lines_and_a_count_last(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", node_id=7)

    lines = run_here("doctor", "--override", f"log.dirs={folder}", "--override", "node.id=1", "-v").stdout.splitlines()

    assert lines[0].startswith("problem: ")
    assert f"problem: data folder: {folder} belongs to node 7, and node.id is 1; set node.id, or log.dirs: a start is refused" in lines
    assert lines[-1].endswith(" in order")
    assert any(line.startswith("fine:    configuration: ") for line in lines)


def test_a_configuration_that_a_start_refuses_is_a_problem_and_what_it_warns_of_is_advice(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("num.partitions=many\n")
    (tmp_path / "dubious").write_text(f"log.dirs={tmp_path / 'data'}\nnum.partitons=3\n")

    status, wrong = doctor("--config", str(tmp_path / "wrong"))
    _, dubious = doctor("--config", str(tmp_path / "dubious"))

    assert status == 4 and wrong[0]["level"] == "problem" and "num.partitions" in wrong[0]["found"]
    assert [each["found"] for each in dubious if each["check"] == "configuration" and "num.partitons" in each["found"]] == [
        "unknown configurations are ignored: num.partitons"
    ]
    assert all(each["level"] == "advice" for each in dubious if each["check"] == "configuration")


def test_a_command_line_that_is_not_understood_ends_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        run_here("doctor", "--no-such-option")

    assert ended.value.code == 2


def test_folders_that_no_node_can_use_are_problems(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = folder_of(tmp_path / "broken")
    (broken / "meta.properties").write_text("version=1\n")
    lost = tmp_path / "lost"
    (lost / "orders-0").mkdir(parents=True)

    for folder, words in ((tmp_path / "file", "is not a folder"), (broken, "has no cluster.id"), (lost, "no meta.properties")):
        assert words in levels(examined(folder), "data folder")["problem"]


def test_folders_of_two_clusters_are_a_problem(tmp_path: Path) -> None:
    found = examined(folder_of(tmp_path / "a"), folder_of(tmp_path / "b", cluster_id="another"))

    assert "cluster another" in levels(found, "data folder")["problem"]


def test_a_folder_that_is_not_there_or_not_formatted_is_advice(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert "is not there" in levels(examined(tmp_path / "none"), "data folder")["advice"]
    assert "is not formatted" in levels(examined(tmp_path / "empty"), "data folder")["advice"]
    formats = ServerConfig(barnabas_auto_format=True)
    assert "formatted at the next start" in levels(examined(tmp_path / "empty", config=formats), "data folder")["fine"]


def test_files_from_the_future_show_that_the_clock_is_wrong(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data")
    os.utime(folder / "meta.properties", (NOW_S + 3_600, NOW_S + 3_600))

    assert "3600 s after" in levels(examined(folder), "clock")["problem"]
    assert levels(examined(folder, now_s=NOW_S + 3_600), "clock") == {}


@pytest.mark.parametrize(("kind", "level"), [("tmpfs", "problem"), ("nfs4", "problem"), ("overlay", "advice"), ("ext4", "fine")])
def test_a_filesystem_is_that_of_the_nearest_mount(tmp_path: Path, kind: str, level: str) -> None:
    folder = folder_of(tmp_path / "data")
    mounts = (
        f"1 0 0:1 / / rw - xfs /dev/a rw\n2 1 0:2 / {folder} rw,noatime shared:1 - {kind} /dev/b rw\n3 1 0:3 / {folder}-2 rw - cifs x rw\n"
    )
    machine = machine_with(tmp_path / "machine", proc__self__mountinfo=mounts)

    assert levels(examined(folder, machine=machine), "filesystem") == {level: f"{folder} is on {kind}"}
    assert machine.filesystem_of(tmp_path) == "xfs"


def test_a_machine_that_swaps_and_has_little_memory_and_short_queues_gets_advice(tmp_path: Path) -> None:
    machine = machine_with(
        tmp_path,
        proc__meminfo="MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n",
        proc__swaps="Filename Type\n/swap file\n",
        proc__sys__vm__swappiness="60\n",
        proc__sys__net__core__somaxconn="128\n",
        proc__sys__kernel__osrelease="4.9.1-generic\n",
    )
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{200 << 20}\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text(f"{100 << 20}\n")

    found = list(examine_machine(machine, ServerConfig(), partitions_count=0))

    assert levels(found, "memory") == {"problem": "100 MB are available"}  # of the control group
    assert set(levels(found, "swap")) == set(levels(found, "connections")) == set(levels(found, "kernel")) == {"advice"}


def test_a_machine_without_such_files_is_said_nothing_of(tmp_path: Path) -> None:
    found = list(examine_machine(Machine(tmp_path), ServerConfig(), partitions_count=0))

    assert {finding.check for finding in found} <= {"file descriptors", "clock"}


def test_as_many_partitions_as_half_of_the_descriptors_are_a_problem(tmp_path: Path) -> None:
    found = list(examine_machine(Machine(tmp_path), None, partitions_count=2**40))

    assert set(levels(found, "file descriptors")) <= {"problem", "fine"}  # fine where there is no limit


def test_a_folder_is_in_use_by_the_broker_and_after_its_death_not_closed_cleanly(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    try:
        _, running = doctor(str(broker.data_dir))
    finally:
        broker.kill()
    _, killed = doctor(str(broker.data_dir))
    broker.start()
    assert broker.stop() == 0
    _, stopped = doctor(str(broker.data_dir))

    assert f"{broker.data_dir} is in use by process {broker.pid}" not in [each["found"] for each in killed]
    assert any(each["found"].startswith(f"{broker.data_dir} is in use by process ") for each in running)
    unclean = f"{broker.data_dir} was not closed by a clean stop"
    assert [unclean in [each["found"] for each in found] for found in (running, killed, stopped)] == [False, True, False]
