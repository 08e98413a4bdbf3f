"""`barnabas format` takes and refuses what Kafka's StorageTool does, and writes the same identity."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.cli.main import main
from protocol.uuids import uuid_from_text
from storage.meta_properties import read_meta_properties
from tests.support.java_host import JavaHost

CONFIG = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs={log_dirs}
"""
STORAGE_TOOL = "kafka.tools.StorageTool"
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
CLUSTER_IDS = [
    "MkU3OEVBNTcwNTJENDM2Qg",
    "MkU3OEVBNTcwNTJENDM2Qk",  # spare bits in the last character
    "MkU3OEVBNTcwNTJENDM2Qg==",
    "b9faf3fd-7f4e-4f2c-9b0b-6c5f9a3b2d11",
    "my cluster",
    "=:#!\\",
]


def write_config(path: Path, log_dirs: str, node_id: int = 1) -> str:
    path.write_text(CONFIG.format(log_dirs=log_dirs, node_id=node_id))
    return str(path)


@pytest.mark.parametrize("cluster_id", CLUSTER_IDS)
def test_the_same_cluster_ids_are_taken_and_written(java_host: JavaHost, tmp_path: Path, cluster_id: str) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"

    told = java_host.tool(STORAGE_TOOL, "format", "-t", cluster_id, "-c", write_config(tmp_path / "a", str(theirs)), expected_status=None)
    status = main(["format", "-t", cluster_id, "-c", write_config(tmp_path / "b", str(ours))])

    assert (told.status, status) == (0, 0)
    assert [line for line in lines(theirs) if "cluster.id" in line] == [line for line in lines(ours) if "cluster.id" in line]
    for directory in (theirs, ours):
        identity = read_meta_properties(directory)
        assert identity is not None and identity.cluster_id == cluster_id


def lines(directory: Path) -> list[str]:
    return (directory / "meta.properties").read_text().splitlines()


def kafka_status(java_host: JavaHost, *arguments: str) -> int:
    """The exit status; 1 where the tool lets an exception end it, as it does for a directory of another cluster or node."""
    try:
        return java_host.tool(STORAGE_TOOL, "format", *arguments, expected_status=None).status
    except AssertionError as e:
        if "Invalid cluster.id in" in str(e) or "Invalid node.id in" in str(e) or "Stored node id" in str(e):
            return 1
        raise


def test_directories_that_are_formatted_already_are_treated_alike(java_host: JavaHost, tmp_path: Path) -> None:
    cases = [
        (["-t", "one"], "first", 1),
        (["-t", "one"], "first", 1),
        (["-t", "one", "-g"], "first", 1),
        (["-t", "two", "-g"], "first", 1),
        (["-t", "one", "-g"], "first", 2),  # another node
        (["-t", "one"], "first,second", 1),
        (["-t", "one", "-g"], "first,second", 1),
    ]

    outcomes = []
    for options, names, node_id in cases:
        theirs = ",".join(str(tmp_path / f"theirs-{name}") for name in names.split(","))
        ours = ",".join(str(tmp_path / f"ours-{name}") for name in names.split(","))
        their_config = write_config(tmp_path / "a", theirs, node_id)
        outcomes.append(
            (
                kafka_status(java_host, *options, "-c", their_config),
                main(["format", *options, "-c", write_config(tmp_path / "b", ours, node_id)]),
            )
        )

    assert outcomes == [(0, 0), (1, 1), (0, 0), (1, 1), (1, 1), (1, 1), (0, 0)]


DYNAMIC_CONFIG = """\
process.roles={roles}
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners={listeners}
controller.listener.names=CONTROLLER
log.dirs={log_dirs}
"""
LISTENERS = {
    "broker,controller": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller": "CONTROLLER://:9093",
    "broker": "PLAINTEXT://:9092",
}
VOTERS = "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@controller-2.example:9094:MvDxzVmcRsaTz33bUuRU6A"
OTHER_VOTERS = "3@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
NOTHING_NEW = ("--feature", "group.version=0")
LATEST_WITHOUT_NEW = ("-r", "4.3", *NOTHING_NEW, "-f", "share.version=0", "-f", "streams.version=0")
CASES: list[tuple[str, tuple[str, ...]]] = [
    ("broker,controller", ("-r", "4.0-IV3", *NOTHING_NEW)),  # refused: who votes is not said
    ("broker,controller", ("-s", "-r", "4.0-IV3", *NOTHING_NEW)),
    ("controller", ("--standalone", *LATEST_WITHOUT_NEW)),
    ("broker", ("--standalone", "-r", "4.0-IV3", *NOTHING_NEW)),  # refused: no controller
    ("broker", ("-r", "4.0.1", *NOTHING_NEW)),
    ("broker", ("-N", *LATEST_WITHOUT_NEW)),
    ("broker,controller", ("-N", "-r", "4.0", *NOTHING_NEW, "-f", "eligible.leader.replicas.version=1")),
    ("broker,controller", ("-I", VOTERS, "-r", "4.1", *NOTHING_NEW)),
    ("broker,controller", ("-I", OTHER_VOTERS, "-r", "4.1-IV0", *NOTHING_NEW)),
    ("broker,controller", ("-I", VOTERS, "-r", "4.1", *NOTHING_NEW, "-f", "kraft.version=0")),  # refused
    ("broker,controller", ("-I", VOTERS, "-r", "4.1", *NOTHING_NEW, "-f", "kraft.version=1")),
    ("broker,controller", ("-N", "-r", "9.9")),
    ("broker,controller", ("-N", "-f", "no.such.version=1")),
    ("broker,controller", ("-N", "-r", "4.0", "-f", "metadata.version=25")),
]


def told_without_paths(text: str, root: Path) -> list[str]:
    return sorted(text.replace(f"{root}/theirs", "DIR").replace(f"{root}/ours", "DIR").splitlines())


def dump(java_host: JavaHost, path: Path) -> list[str]:
    """What Kafka's tool reads in a snapshot, without what differs by time and chance."""
    output = java_host.tool(DUMP_TOOL, "--cluster-metadata-decoder", "--files", str(path)).stdout
    lines = [line[line.index("offset:") :] if "| offset:" in line else "batch" for line in output.splitlines() if "ffset:" in line]
    return [re.sub(r'CreateTime: \d+|"lastContainedLogTimestamp":\d+|"voterDirectoryId":"[^"]*"', "", line) for line in lines]


@pytest.mark.parametrize(("roles", "options"), CASES)
def test_the_same_options_write_the_same_files_with_the_same_words(
    java_host: JavaHost, tmp_path: Path, capsys: pytest.CaptureFixture[str], roles: str, options: tuple[str, ...]
) -> None:
    configs = {}
    for side in ("theirs", "ours"):
        configs[side] = tmp_path / f"{side}.properties"
        log_dirs = f"{tmp_path / side},{tmp_path / side}-2"
        configs[side].write_text(DYNAMIC_CONFIG.format(roles=roles, listeners=LISTENERS[roles], log_dirs=log_dirs))

    told = java_host.tool(STORAGE_TOOL, "format", *options, "-t", "one", "-c", str(configs["theirs"]), expected_status=None)
    status = main(["format", *options, "-t", "one", "-c", str(configs["ours"])])

    said = capsys.readouterr()
    assert status == told.status
    if status:
        refusal = told.stderr.splitlines()[0]
        assert said.err == f"barnabas format: {refusal}\n"
        return
    assert told_without_paths(said.out, tmp_path) == told_without_paths(told.stdout, tmp_path)
    files = {side: sorted(str(path.relative_to(tmp_path / side)) for path in (tmp_path / side).rglob("*")) for side in configs}
    assert files["ours"] == files["theirs"]
    for name in files["ours"]:
        if name.endswith(".checkpoint"):
            assert dump(java_host, tmp_path / "ours" / name) == dump(java_host, tmp_path / "theirs" / name)
    identities = [read_meta_properties(tmp_path / side) for side in configs]
    assert all(each is not None and each.directory_id is not None for each in identities)
    if VOTERS in options:
        assert {each.directory_id for each in identities if each} == {uuid_from_text("JEXY6aqzQY-32P5TStzaFg")}
