"""A driver that is killed, with its JVM, between Delta's commit and Spark's note that the batch is done.

python -m tests.pipeline.delta_driver SERVERS TOPIC ARCHIVE SCHEMA
"""

from __future__ import annotations

import os
import signal
import sys

from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.decoding import Decoding
from pipeline.delta import DeltaPublisher
from tests.pipeline.spark_support import delta_session


def main(servers: str, topic: str, target: str, schema: str) -> None:
    apply = DeltaPublisher._apply

    def apply_and_die(publisher: DeltaPublisher, attempt: str, batch_id: int, batch: str) -> None:
        apply(publisher, attempt, batch_id, batch)
        os.killpg(0, signal.SIGKILL)

    DeltaPublisher._apply = apply_and_die  # type: ignore[method-assign]
    decoding = Decoding.open({"value": f"json:{schema}"})
    archive(
        delta_session(), ArchiveJob(servers, ("subscribe", topic), target, is_delta_table=True, decoding=decoding), stop=Stop(), say=print
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
