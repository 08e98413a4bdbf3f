"""What may change from one run of an archive to the next, judged before Spark sees it; what Spark makes of it is in test_archive.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.hadoop_files import HadoopFiles
from pipeline.ownership import Ownership, OwnershipError
from pipeline.subscription import FILE, NO_ID, Subscription, SubscriptionError

pytestmark = [pytest.mark.spark]

A_AND_B = ("subscribe", "a,b")


class FakeCluster:
    """Brokers that are told what they have: a topic's id, and the first offset of its one partition."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids
        self.id: str | None = "cluster-1"
        self.first_offset = 0

    def cluster_id(self) -> str | None:
        return self.id

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def earliest_offsets(self, topic: str) -> Mapping[int, int]:
        return {0: self.first_offset}

    def matching(self, pattern: str, topics: Sequence[str]) -> Set[str]:
        return {topic for topic in topics if re.fullmatch(pattern, topic)}


class Archive:
    """An archive's folder with a checkpoint as Spark leaves it, and the brokers that it is of."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self.checkpoint = root / "_checkpoint"
        self.files = HadoopFiles(spark, str(root))
        self.cluster = FakeCluster(a="id-a", b="id-b")

    def begin(self, **positions: int) -> None:
        """What Spark has written before its first batch."""
        self._write("metadata", '{"id":"query-1"}')
        self._write("sources/0/0", "\0v1\n" + self._positions(positions))

    def plan(self, batch_id: int, **positions: int) -> None:
        self._write(f"offsets/{batch_id}", f'v1\n{{"batchTimestampMs":{batch_id}}}\n{self._positions(positions)}')

    def commit(self, batch_id: int) -> None:
        self._write(f"commits/{batch_id}", "v1\n{}")

    def subscribe(self, subscription: tuple[str, str]) -> Subscription:
        job = Subscription(self.files, str(self.root), Checkpoint(self.files, str(self.checkpoint)), self.cluster, subscription)
        job.recall()
        return job

    def run(self, subscription: tuple[str, str], *, published: Set[str] = frozenset(), allow_data_loss: bool = False) -> None:
        self.subscribe(subscription).open(published=published, allow_data_loss=allow_data_loss)

    def noted(self) -> dict[str, object]:
        content: dict[str, object] = json.loads((self.root / FILE).read_text())
        return content

    def _write(self, name: str, text: str) -> None:
        path = self.checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @staticmethod
    def _positions(positions: Mapping[str, int]) -> str:
        return json.dumps({topic: {"0": offset} for topic, offset in positions.items()})


@pytest.fixture
def archive(spark: SparkSession, tmp_path: Path) -> Archive:
    """An archive of the topics a and b after one batch."""
    archive = Archive(spark, tmp_path)
    first_run = archive.subscribe(A_AND_B)
    first_run.open(published=frozenset(), allow_data_loss=False)
    archive.begin(a=0, b=0)
    archive.plan(0, a=10, b=20)
    first_run.confirm(0)
    archive.commit(0)
    return archive


def test_first_batch_notes_cluster_checkpoint_and_topics(archive: Archive) -> None:
    assert archive.noted() == {
        "version": 1,
        "option": "subscribe",
        "value": "a,b",
        "cluster_id": "cluster-1",
        "query_id": "query-1",
        "topic_ids": {"a": "id-a", "b": "id-b"},
    }


def test_added_topic_is_taken_and_noted(archive: Archive) -> None:
    archive.cluster.ids["c"] = "id-c"

    archive.run(("subscribe", "a, b,c"))

    assert archive.noted()["value"] == "a, b,c"


@pytest.mark.parametrize(
    ("subscription", "named"),
    [(("subscribe", "a"), "topic b"), (("subscribePattern", "[bc]"), "topic a"), (("subscribe", "c"), "topics a, b")],
)
def test_topic_that_is_left_out_is_refused_by_name_with_a_way_out(archive: Archive, subscription: tuple[str, str], named: str) -> None:
    before = archive.noted()

    with pytest.raises(SubscriptionError, match=f"is an archive of {named} too.* archive to another folder"):
        archive.run(subscription)

    assert archive.noted() == before


def test_topic_is_not_forgotten_that_no_batch_has_held_yet(spark: SparkSession, tmp_path: Path) -> None:
    """Killed in the first run, after Spark noted where it begins."""
    archive = Archive(spark, tmp_path)
    archive.begin(a=0, b=0)

    with pytest.raises(SubscriptionError, match="topic b too"):
        archive.run(("subscribe", "a"))


def test_deleted_topic_may_be_left_out_when_loss_is_allowed(archive: Archive) -> None:
    del archive.cluster.ids["b"]

    with pytest.raises(SubscriptionError, match="topic b was deleted from the cluster; --allow-data-loss"):
        archive.run(("subscribePattern", "."))
    archive.run(("subscribe", "a"), allow_data_loss=True)


def test_topic_made_again_is_refused_before_a_run_and_before_a_batch_counts(archive: Archive) -> None:
    archive.plan(1, a=11, b=21)
    running = archive.subscribe(A_AND_B)
    archive.cluster.ids["b"] = "id-of-another"

    with pytest.raises(SubscriptionError, match="topic b was deleted and created again"):
        archive.run(A_AND_B, allow_data_loss=True)
    with pytest.raises(SubscriptionError, match="topic b was deleted and created again"):
        running.confirm(1)


def test_brokers_without_ids_are_no_other_topics(archive: Archive) -> None:
    archive.cluster.ids = {"a": NO_ID, "b": NO_ID}
    archive.cluster.id = None
    before = archive.noted()

    archive.run(A_AND_B)

    assert archive.noted() == before


def test_other_cluster_is_refused(archive: Archive) -> None:
    archive.cluster.id = "cluster-2"

    with pytest.raises(SubscriptionError, match="is an archive of cluster cluster-1, and these brokers are of cluster-2"):
        archive.run(A_AND_B)


def test_other_checkpoint_is_refused(archive: Archive) -> None:
    archive.checkpoint = archive.root / "other"

    with pytest.raises(SubscriptionError, match=r"other is not the checkpoint that .* was written with"):
        archive.run(A_AND_B)


def test_archive_without_the_file_is_adopted_from_its_checkpoint(archive: Archive) -> None:
    """As every archive was before there was the file."""
    before = archive.noted()
    (archive.root / FILE).unlink()

    with pytest.raises(SubscriptionError, match="topic a too"):
        archive.run(("subscribe", "b"))
    archive.run(A_AND_B, published={"a", "b"})

    assert archive.noted() == before


def test_published_topic_that_the_checkpoint_has_forgotten_would_come_twice(archive: Archive) -> None:
    """It was left out for a batch, before there was the file."""
    with pytest.raises(SubscriptionError, match=r"holds records of topic c, .* they would come twice"):
        archive.run(("subscribe", "a,b,c"), published={"a", "b", "c"})
    archive.run(A_AND_B, published={"a", "b", "c"})


def test_batch_that_was_planned_without_a_topic_is_named_with_the_way_out(archive: Archive) -> None:
    """How a changed list left an archive before there was the file: Spark never gets past that plan."""
    archive.plan(1, a=11)
    plan = archive.checkpoint / "offsets" / "1"

    with pytest.raises(SubscriptionError, match=f"batch 1 was planned without topic b: delete {plan} and name all topics again"):
        archive.run(A_AND_B, published={"a", "b"})
    plan.unlink()
    archive.run(A_AND_B, published={"a", "b"})


def test_added_topic_whose_first_records_are_gone_is_refused_until_that_is_allowed(archive: Archive) -> None:
    """Spark plans a batch with it and then fails the batch; from then on the topic cannot be left out either."""
    archive.cluster.ids["c"], archive.cluster.first_offset = "id-c", 60

    with pytest.raises(SubscriptionError, match=r"topic c is added, and its partition 0 begins at offset 60.*--allow-data-loss"):
        archive.run(("subscribe", "a,b,c"))
    archive.run(("subscribe", "a,b,c"), allow_data_loss=True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "option": "subscribe", "value": "a", "x": 1}'])
def test_damaged_file_is_named(archive: Archive, text: str) -> None:
    (archive.root / FILE).write_text(text)

    with pytest.raises(SubscriptionError, match=f"{FILE} is damaged"):
        archive.run(A_AND_B)


def test_second_job_on_a_local_archive_is_refused_until_the_first_ends(archive: Archive) -> None:
    first, second = (Ownership(archive.files, str(archive.root)) for _ in range(2))

    with first.held(), pytest.raises(OwnershipError, match=r"process \d+ since .* archives into .*: one job at a time"), second.held():
        pass
    with second.held():
        pass


class RemoteFiles(HadoopFiles):
    """Local files that are taken for ones of a system without locks."""

    def local_path(self, path: str) -> str | None:
        return None


def test_elsewhere_the_job_that_began_last_goes_on_and_the_other_ends(spark: SparkSession, tmp_path: Path) -> None:
    files = RemoteFiles(spark, str(tmp_path))
    first, second = Ownership(files, str(tmp_path)), Ownership(files, str(tmp_path))

    with first.held():
        first.check()
        with second.held():
            second.check()
            with pytest.raises(OwnershipError, match="this job ends, the other goes on"):
                first.check()
