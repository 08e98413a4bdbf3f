"""Does harm to a cluster of processes under load, and checks that no acked record is lost, doubled or moved.

    python -m tests.faults.chaos --minutes 60 [--seed 7] [--faults kill-leader,restart] [--mixed] [--shape two] [--power]
                               [--feature NAME=LEVEL]

Replication factor 3, min.insync.replicas 2, idempotent producers with acks=all, a consumer group of either protocol. Four nodes, three of
which vote at first: while faults strike, replicas and votes move between them. Other shapes have controllers apart, or two nodes. Prints
each fault and each window, and ends with status 1 when a window shows an anomaly; the data stay for a look.

Where nodes of Kafka take part, librdkafka's producers have one request in flight. A Kafka node that does not know yet that it leads refuses
the first of several with NOT_LEADER_OR_FOLLOWER and the next, a moment later, for the gap. Upon that librdkafka begins a new epoch and
sends anew what the last leader may have taken: a duplicate.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.faults.changes import CHANGES, MOVE_VOTER, NODES_MIN
from tests.faults.cluster_campaign import ClusterCampaign, Window
from tests.faults.load import REQUESTS_IN_FLIGHT_MAX
from tests.faults.nemesis import OF_DISK, OF_NETWORK, OPERATIONS
from tests.faults.shapes import SHAPES
from tests.support.cluster import BARNABAS, BROKER_ONLY, COMBINED, CONTROLLER_ONLY, KAFKA, KINDS, Cluster
from tests.support.cluster_network import ClusterNetwork, missing_network
from tests.support.power import PowerCutDisk

WINDOW_S = 30.0
SENDS_PER_SECOND = 100
PAUSE_S = 12.0  # broker.session.timeout.ms is 9 s
FAULTS = ("kill-leader", "kill-follower", "kill-controller", "kill-all", "pause-leader", "pause-controller", "restart")
# Isolated: from the other nodes, both ways, while clients reach it. Mute and deaf: one way.
NETWORK_FAULTS = (
    *("isolate-leader", "isolate-controller", "cut-off-leader"),
    *("mute-leader", "mute-controller", "deafen-leader", "deafen-controller"),
)

POWER_FAULTS = ("power-cut-leader", "power-cut-controller", "power-cut-all", "full-disk-leader")
# What is acknowledged, to producers and in groups, is then on the disk of every replica in the ISR.
FLUSH_SETTINGS = {"log.flush.interval.messages": "1"}
DISK_BYTES = 4 << 30  # as much of it as is written, in memory, for each node


INITIAL_VOTERS_COUNT = 3
NODES = (BARNABAS,) * 4
MIXED_NODES = (KAFKA, BARNABAS, KAFKA, BARNABAS)


def possible_faults(roles: Sequence[str] = SHAPES["combined"]) -> tuple[str, ...]:
    """Those that this machine lets be done to nodes with these `roles`, and changes among them."""
    brokers_count, controllers_count = (sum(each != other for each in roles) for other in (CONTROLLER_ONLY, BROKER_ONLY))
    changes = [kind for kind in CHANGES if (controllers_count if kind == MOVE_VOTER else brokers_count) >= NODES_MIN[kind]]
    return (*FAULTS, *OPERATIONS, *changes, *(NETWORK_FAULTS if missing_network() is None else ()))


def run(
    seconds: float,
    seed: int,
    directory: Path,
    *,
    faults: Sequence[str] = FAULTS,
    kinds: Sequence[str] = NODES,
    roles: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    pause_s: float = PAUSE_S,
    sends_per_second: int = SENDS_PER_SECOND,
    window_s: float = WINDOW_S,
    has_java: bool = True,
) -> list[Window]:
    """The windows, each printed as it ends; stops after the first one with an anomaly, so that its data can be looked at.
    `sends_per_second` is of each producer.

    `roles` are the nodes' process.roles; each is broker and controller if none are given."""
    end_s = time.monotonic() + seconds
    with ExitStack() as stack:
        network = None
        if any(fault.startswith(OF_NETWORK) for fault in faults):
            network = ClusterNetwork(range(1, len(kinds) + 1))
            stack.callback(network.close)
        disks: dict[int, PowerCutDisk] = {}
        for node_id in range(1, len(kinds) + 1) if any(fault.startswith(OF_DISK) for fault in faults) else ():
            disks[node_id] = PowerCutDisk(directory / f"disk{node_id}", seed + node_id, size_bytes=DISK_BYTES)
            stack.callback(disks[node_id].close)
        settings = {**(FLUSH_SETTINGS if disks else {}), **(settings or {})}
        data_dirs = {node_id: disk.mount_point / "data" for node_id, disk in disks.items()}
        initial_voters = range(1, INITIAL_VOTERS_COUNT + 1) if MOVE_VOTER in faults else ()
        cluster = stack.enter_context(
            Cluster(
                directory,
                kinds,
                settings=settings,
                node_settings={node_id: {"process.roles": each} for node_id, each in enumerate(roles, start=1)},
                network=network,
                data_dirs=data_dirs,
                features=features,
                initial_voters=initial_voters,
            )
        )
        campaign = ClusterCampaign(
            cluster,
            seed=seed,
            pause_s=pause_s,
            has_java=has_java,
            sends_per_second=sends_per_second,
            topic_config={"flush.messages": "1"} if disks else {},
            requests_in_flight=1 if KAFKA in kinds else REQUESTS_IN_FLIGHT_MAX,
            network=network,
            disks=disks,
        )
        try:
            while not campaign.windows or (time.monotonic() < end_s and not campaign.windows[-1].anomalies):
                print(campaign.run_window(faults, seconds=min(window_s, end_s - time.monotonic())), flush=True)
            if not campaign.windows[-1].anomalies:
                campaign.windows[-1].anomalies |= campaign.check_all()
            print(summary(campaign), flush=True)
        finally:
            campaign.close()
    return campaign.windows


def summary(campaign: ClusterCampaign) -> str:
    """The figures of a run, for the note."""
    strikes = [strike for window in campaign.windows for strike in window.strikes]
    counts = Counter(strike.kind for strike in strikes)
    all_after_s = sorted(strike.ack_after_heal_s for strike in strikes if strike.kind == "kill-all")
    after_s = sorted(strike.ack_after_s[partition] for strike in strikes if strike.kind == "kill-leader" for partition in strike.led)
    errors = ", ".join(f"{name} {count}" for name, count in campaign.load.history.client_errors.most_common()) or "none"
    lines = [
        f"{sum(window.acked for window in campaign.windows)} acked in {len(campaign.windows)} windows",
        f"{len(strikes)} faults: {', '.join(f'{kind} {count}' for kind, count in counts.most_common())}",
        f"errors that clients saw: {errors}",
    ]
    if all_after_s:
        median_s, max_s = statistics.median(all_after_s), all_after_s[-1]
        lines.insert(2, f"from the start of all to the next ack of the last partition: p50 {median_s:.2f} s, max {max_s:.2f} s")
    if after_s:
        lines.insert(2, f"kill -9 of a leader to the next ack: p50 {statistics.median(after_s):.2f} s, max {after_s[-1]:.2f} s")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", help="names, separated by commas; one that stands twice is drawn twice as often")
    parser.add_argument(
        "--power", action="store_true", help="power cuts and full disks too, with flush.messages=1; needs root and loop devices"
    )
    parser.add_argument("--nodes", default=",".join(NODES), help=f"the kind of each node: {', '.join(KINDS)}")
    parser.add_argument("--shape", choices=SHAPES, default="combined", help="which nodes are brokers, and which controllers")
    parser.add_argument("--mixed", action="store_true", help=f"the same as --nodes {','.join(MIXED_NODES)}")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting of every node")
    parser.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL", help="a feature that the cluster begins with")
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds that a node is stopped for; longer than its session timeout")
    parser.add_argument("--no-java", action="store_true", help="librdkafka's producers alone")
    parser.add_argument("--directory", type=Path, help="where the data and the logs go (default: a temporary folder)")
    arguments = parser.parse_args()
    kinds = MIXED_NODES if arguments.mixed else arguments.nodes.split(",")
    roles = (COMBINED,) * len(kinds)
    if arguments.shape != "combined":
        roles = SHAPES[arguments.shape]
        kinds = (BARNABAS,) * len(roles)
    faults = arguments.faults.split(",") if arguments.faults else possible_faults(roles)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-chaos-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    windows = run(
        arguments.minutes * 60,
        arguments.seed,
        directory,
        faults=[*faults, *(POWER_FAULTS if arguments.power else ())],
        kinds=kinds,
        roles=roles,
        settings=dict(override.split("=", 1) for override in arguments.override),
        features=arguments.feature,
        pause_s=arguments.pause,
        has_java=not arguments.no_java,
    )
    if any(window.anomalies for window in windows):
        return 1
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
