"""The three topics in which Connect keeps what it knows: how it makes them, and that compaction takes nothing that counts."""

from __future__ import annotations

from pathlib import Path

from storage.checkpoint import read_offset_checkpoint
from tests.clients.topics import end_offset, read_to_end
from tests.connect.conftest import COMPACTED_SOON
from tests.connect.connectors import SHORT_SESSION, Connectors, Feed, firsts, read_lines
from tests.connect.topics import partition_count, topic_configs
from tests.support.connect import ConnectWorker
from tests.support.process import ServerProcess

PARTITIONS = {"connect-configs": 1, "connect-offsets": 25, "connect-status": 5}


def clean_ends(broker: ServerProcess) -> dict[str, int]:
    """Up to where each topic is compacted, in the partition where that is furthest."""
    ends = dict.fromkeys(PARTITIONS, 0)
    for (topic, _), end in read_offset_checkpoint(broker.data_dir / "cleaner-offset-checkpoint").items():
        if topic in ends:
            ends[topic] = max(ends[topic], end)
    return ends


def test_a_worker_makes_its_topics_compacted(worker: ConnectWorker, broker: ServerProcess) -> None:
    """With the configs that it was given for them."""
    assert {topic: partition_count(broker, topic) for topic in PARTITIONS} == PARTITIONS
    wanted = {"cleanup.policy": "compact", **COMPACTED_SOON}
    for topic in PARTITIONS:
        assert wanted.items() <= topic_configs(broker, topic).items()


def test_connectors_outlive_compaction_and_kills(connectors: Connectors, broker: ServerProcess, tmp_path: Path) -> None:
    """What a killed worker and a killed broker find again was compacted: configs, states, and how far the file has been read."""
    source_file, sink_file = tmp_path / "source.txt", tmp_path / "sink.txt"
    worker, feed = connectors.worker, Feed(source_file)
    gone = connectors.start("gone", {"connector.class": "FileStreamSource", "file": str(tmp_path / "none.txt"), "topic": "none"})
    worker.ask("DELETE", f"/connectors/{gone}")
    connectors.made.remove(gone)
    source, sink = connectors.start_source(source_file), connectors.start_sink(sink_file, **SHORT_SESSION)
    configs = {name: worker.ask("GET", f"/connectors/{name}/config") for name in (source, sink)}
    compacted_before, written = clean_ends(broker), end_offset(broker, "connect-configs")

    def is_compacted() -> bool:
        """Each call writes to all three topics, for only what is written after them compacts the records before."""
        feed.append(10)
        connectors.set_state(source, "pause", "PAUSED")
        connectors.set_state(source, "resume", "RUNNING")
        ends = clean_ends(broker)
        return ends["connect-configs"] > written and all(ends[topic] > compacted_before[topic] for topic in PARTITIONS)

    worker.wait_for(is_compacted, "all three topics are compacted")
    connectors.wait_lines(sink_file, feed.lines)
    for process in (worker, broker):
        process.kill()
    for process in (broker, worker):
        process.start()

    left = read_to_end(broker, "connect-configs")
    assert len(left) < end_offset(broker, "connect-configs"), "else nothing was compacted"
    assert {record.value for record in left if record.key == f"connector-{gone}".encode()} <= {None}
    assert sorted(worker.ask("GET", "/connectors")) == sorted(configs)
    assert {name: worker.ask("GET", f"/connectors/{name}/config") for name in configs} == configs
    for name in configs:
        connectors.wait_state(name, "RUNNING")
    feed.append(10)
    connectors.wait_lines(sink_file, feed.lines)
    assert firsts(read_lines(sink_file)) == feed.lines
    assert read_lines(sink_file).count(feed.lines[0]) == 1, "else the source began anew"
