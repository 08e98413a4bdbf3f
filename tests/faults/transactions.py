"""Does harm to a cluster and to transactional clients that copy topics on it, and checks that all is copied exactly once.

    python -m tests.faults.transactions --minutes 60 [--seed 7] [--nodes 1] [--faults kill-coordinator,kill-client] [--mixed]

A source writes transactions; copiers of confluent-kafka (in classic and consumer groups), aiokafka and, where Java is, Kafka's
TransactionalMessageCopier read, write and commit offsets in transactions, some of which are aborted. Prints each fault and each window, and
ends with status 1 when a window shows an anomaly; the data stay for a look.

Where nodes of Apache Kafka take part, no fault leaves a partition without a leader: a 4.3.1 node that coordinates would leave the
transaction open there (KAFKA-20734).
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.transactional_campaign import (
    KILL_CLIENT,
    KILL_COORDINATOR,
    KILL_GROUP_COORDINATOR,
    PAUSE_CLIENT,
    TransactionalCampaign,
    Window,
    summary,
)
from tests.faults.transactional_load import JAVA_PIPELINE, PYTHON_PIPELINES
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import missing_java

WINDOW_S = 30.0
PAUSE_S = 14.0  # the transaction times out after 12 s, the session of a node after 9
NODES_COUNT = 3
MIXED_NODES = (KAFKA, BARNABAS, KAFKA, BARNABAS)
ON_ONE = (KILL_CLIENT, KILL_CLIENT, PAUSE_CLIENT, "kill-all", "restart")
# Those after which every partition has a leader that was in its ISR.
FOR_MIXED = (
    KILL_CLIENT,
    KILL_CLIENT,
    KILL_COORDINATOR,
    KILL_GROUP_COORDINATOR,
    "kill-leader",
    "kill-follower",
    "kill-controller",
    "restart",
)
FAULTS = (*FOR_MIXED, "kill-all", PAUSE_CLIENT, "pause-leader", "pause-controller")
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
}


def faults_for(kinds: Sequence[str]) -> tuple[str, ...]:
    """Those that a cluster of these nodes is to withstand."""
    if len(kinds) == 1:
        return ON_ONE
    return FOR_MIXED if KAFKA in kinds else FAULTS


def run(
    seconds: float,
    seed: int,
    directory: Path,
    *,
    kinds: Sequence[str] = (BARNABAS,) * NODES_COUNT,
    faults: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    pause_s: float = PAUSE_S,
    window_s: float = WINDOW_S,
    has_java: bool = True,
    client_debug: str = "",
) -> list[Window]:
    """The windows, each printed as it ends; stops after the first one with an anomaly, so that its data can be looked at."""
    end_s = time.monotonic() + seconds
    pipelines = (*PYTHON_PIPELINES, *((JAVA_PIPELINE,) if has_java else ()))
    with Cluster(directory, kinds, settings={**SETTINGS, **(settings or {})}, features=features) as cluster:
        campaign = TransactionalCampaign(cluster, pipelines, seed=seed, pause_s=pause_s, client_debug=client_debug)
        try:
            while not campaign.windows or (time.monotonic() < end_s and not campaign.windows[-1].anomalies):
                left_s = end_s - time.monotonic()
                print(campaign.run_window(faults or faults_for(kinds), seconds=min(window_s, left_s)), flush=True)
            if not campaign.windows[-1].anomalies:
                campaign.windows[-1].anomalies |= campaign.check_all()
            print(summary(campaign.windows), flush=True)
            print(f"what clients told: {dict(campaign.load.history.client_errors.most_common())}", flush=True)
        finally:
            campaign.close()
    return campaign.windows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", help="names, separated by commas; one that stands twice is drawn twice as often")
    parser.add_argument("--nodes", type=int, default=NODES_COUNT, help="of Barnabas")
    parser.add_argument("--mixed", action="store_true", help=f"the nodes {','.join(MIXED_NODES)} instead")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting of every node")
    parser.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL", help="a feature that the cluster begins with")
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds that a client or a node is stopped for")
    parser.add_argument("--no-java", action="store_true", help="clients in Python alone")
    parser.add_argument("--client-debug", default="", metavar="CONTEXTS", help="what librdkafka logs into clients/, as eos,protocol")
    parser.add_argument("--directory", type=Path, help="where the data and the logs go (default: a temporary folder)")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-transactions-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    windows = run(
        arguments.minutes * 60,
        arguments.seed,
        directory,
        kinds=MIXED_NODES if arguments.mixed else (BARNABAS,) * arguments.nodes,
        faults=arguments.faults.split(",") if arguments.faults else (),
        settings=dict(override.split("=", 1) for override in arguments.override),
        features=arguments.feature,
        pause_s=arguments.pause,
        has_java=not arguments.no_java and missing_java() is None,
        client_debug=arguments.client_debug,
    )
    if any(window.anomalies for window in windows):
        return 1
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
