"""`barnabas format` takes and refuses what Kafka's StorageTool does, and writes the same identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.main import main
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
