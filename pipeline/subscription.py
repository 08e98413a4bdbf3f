"""Checks that a job's cluster and topics are the archive's: `_subscription.json` in the archive, beside the checkpoint.

Spark's checkpoint accepts any topics of any cluster at any start. It plans a batch with them and only then fails, so that every later run
fails too. Or it does not fail, and the archive gets other records for the same offsets, or the same records twice. So the cluster, the
checkpoint and the id of each topic are noted before a batch with them is published, and compared before each run and each publication.
Topics may be added: Spark reads a topic that its last plan does not have from the earliest offset.

An archive without this file gets one, made from its checkpoint and its folders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.layout import NO_BATCH
from pipeline.errors import PipelineError
from pipeline.options import topic_names

FILE = "_subscription.json"
VERSION = 1
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the id of every topic, from brokers without topic ids
WAY_OUT = "archive to another folder"


class SubscriptionError(PipelineError):
    """The job does not match the archive. Nothing was written."""


class Cluster(Protocol):
    """The questions to the brokers."""

    def cluster_id(self) -> str | None: ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """The ids of the topics that exist."""

    def earliest_offsets(self, topic: str) -> Mapping[int, int]: ...

    def matching(self, pattern: str, topics: Sequence[str]) -> Set[str]:
        """The topics whose whole names match, in Java's syntax."""


@dataclass(frozen=True, slots=True)
class Note:
    """The file's content. A field is None if it was not known yet, or if the brokers are too old to have it."""

    option: str
    value: str
    cluster_id: str | None = None
    query_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION


class Subscription:
    """Compares one job with the archive. Owns FILE."""

    def __init__(self, files: HadoopFiles, root: str, checkpoint: Checkpoint, cluster: Cluster, subscription: tuple[str, str]) -> None:
        """`subscription` is one of Spark's options subscribe and subscribePattern with its value."""
        self._files = files
        self._root = root.rstrip("/")
        self._path = f"{self._root}/{FILE}"
        self._checkpoint = checkpoint
        self._cluster = cluster
        self._option, self._value = subscription
        self._note = Note(self._option, self._value)

    def recall(self) -> None:
        """Reads FILE. Raises SubscriptionError if it has another checkpoint or cluster than this job."""
        noted = self._read()
        if noted is not None:
            self._note = noted
            self._require_same_checkpoint()
            self._require_same_cluster()

    def open(self, *, published: Set[str], allow_data_loss: bool) -> None:
        """Compares this job's topics with the archive's, and notes new ones. `published` are the topics of the checkpoint's committed
        batches.

        Raises SubscriptionError, with nothing written, for a job that would damage the archive, or that Spark would refuse after it has
        written its plan.
        """
        known = self._checkpoint.topics_at(self._checkpoint.last_planned())
        self._require_covered(known, allow_data_loss=allow_data_loss)
        self._require_same_topics(self._covered(sorted({*self._note.topic_ids, *known})))
        if not allow_data_loss:
            self._require_whole_plan()
        self._require_placed(published - known)
        if not allow_data_loss:
            self._require_existing(known)
            self._require_whole_topics(known)
        self._keep(sorted(known))

    def confirm(self, batch_id: int) -> None:
        """Called when a batch has been read and is not visible yet: checks that its records are from the noted topics.

        Raises SubscriptionError if a topic was deleted and created again since, because its offsets are those of other records then.
        """
        topics = sorted(self._checkpoint.topics_at(batch_id))
        self._require_same_cluster()
        self._require_same_topics(topics)
        self._keep(topics)

    def _read(self) -> Note | None:
        if not self._files.exists(self._path):
            return None
        try:
            content = json.loads(self._files.read_text(self._path))
            if content["version"] > VERSION:
                raise SubscriptionError(f"{self._path} was written by a newer version of Barnabas")
            return Note(**content)
        except (ValueError, KeyError, TypeError) as e:
            raise SubscriptionError(f"{self._path} is damaged ({e}); without it, it is made anew from the checkpoint") from e

    def _keep(self, topics: Sequence[str]) -> None:
        """Notes the subscription, the topics' ids and the cluster. Known ids are kept."""
        ids = {topic: id for topic, id in self._cluster.topic_ids(topics).items() if id != NO_ID or topic not in self._note.topic_ids}
        note = replace(
            self._note,
            option=self._option,
            value=self._value,
            cluster_id=self._note.cluster_id or self._cluster.cluster_id(),
            query_id=self._note.query_id or self._checkpoint.query_id(),
            topic_ids={**self._note.topic_ids, **ids},
        )
        if note != self._note or not self._files.exists(self._path):
            self._files.make_directories(self._root)
            self._files.write_text(self._path, json.dumps(asdict(note), indent=1, sort_keys=True) + "\n")
        self._note = note

    def _require_same_checkpoint(self) -> None:
        if self._note.query_id and self._note.query_id != self._checkpoint.query_id():
            raise SubscriptionError(
                f"{self._checkpoint.folder} is not the checkpoint that {self._root} was written with; give that one, or {WAY_OUT}"
            )

    def _require_same_cluster(self) -> None:
        now = self._cluster.cluster_id()
        if self._note.cluster_id and now and now != self._note.cluster_id:
            raise SubscriptionError(
                f"{self._root} is an archive of cluster {self._note.cluster_id}, and these brokers are of {now}; {WAY_OUT}"
            )

    def _require_covered(self, known: Set[str], *, allow_data_loss: bool) -> None:
        left_out = sorted(known - set(self._covered(sorted(known))))
        if allow_data_loss:
            # A deleted topic cannot be in the subscription.
            existing = self._cluster.topic_ids(left_out)
            left_out = [topic for topic in left_out if topic in existing]
        if left_out:
            raise SubscriptionError(
                f"{self._root} is an archive of {_listed(left_out)} too: name all of its topics (others may be added), "
                f"or {WAY_OUT} and say by --start where it begins"
            )

    def _require_same_topics(self, topics: Sequence[str]) -> None:
        now = self._cluster.topic_ids(topics)
        for topic in topics:
            noted = self._note.topic_ids.get(topic)
            if noted and topic in now and now[topic] != noted and NO_ID not in (noted, now[topic]):
                raise SubscriptionError(
                    f"topic {topic} was deleted and created again since {self._root} was begun: its offsets are of other records now; "
                    f"{WAY_OUT}"
                )

    def _require_placed(self, published: Set[str]) -> None:
        """Refuses a topic that the checkpoint has dropped, because a batch was without it: Spark would read it from its beginning."""
        doubled = self._covered(sorted(published))
        if doubled:
            raise SubscriptionError(
                f"{self._root} holds records of {_listed(doubled)}, and its checkpoint no longer says up to where: they would come twice; "
                f"leave that out, or {WAY_OUT}"
            )

    def _require_whole_plan(self) -> None:
        planned = self._checkpoint.last_planned()
        if planned <= self._checkpoint.last_committed():
            return
        dropped = sorted(self._checkpoint.topics_at(planned - 1 if planned else NO_BATCH) - self._checkpoint.topics_at(planned))
        if dropped:
            raise SubscriptionError(
                f"batch {planned} was planned without {_listed(dropped)}: delete {self._checkpoint.plan_path(planned)} and name all topics "
                "again, or give --allow-data-loss to go on without that"
            )

    def _require_existing(self, known: Set[str]) -> None:
        gone = sorted(known - self._cluster.topic_ids(sorted(known)).keys())
        if gone:
            raise SubscriptionError(f"{_listed(gone)} was deleted from the cluster; --allow-data-loss goes on without it")

    def _require_whole_topics(self, known: Set[str]) -> None:
        """Refuses an added topic whose first records were deleted: Spark would plan a batch with it, then fail. Spark itself finds the
        topics that a pattern adds."""
        if self._option != "subscribe" or not known:
            return
        for topic in sorted(set(topic_names(self._value)) - known):
            for partition, offset in self._cluster.earliest_offsets(topic).items():
                if offset:
                    raise SubscriptionError(
                        f"topic {topic} is added, and its partition {partition} begins at offset {offset}: earlier records were deleted; "
                        "--allow-data-loss archives what is left"
                    )

    def _covered(self, topics: Sequence[str]) -> list[str]:
        if self._option == "subscribe":
            named = set(topic_names(self._value))
            return [topic for topic in topics if topic in named]
        matching = self._cluster.matching(self._value, topics)
        return [topic for topic in topics if topic in matching]


def _listed(topics: Sequence[str]) -> str:
    return ("topic " if len(topics) == 1 else "topics ") + ", ".join(topics)
