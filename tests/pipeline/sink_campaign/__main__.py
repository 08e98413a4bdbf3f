"""Kills Spark and its brokers at each step of the sink's protocol, and judges the copy.

    python -m tests.pipeline.sink_campaign --kills 200 [--seed 7] [--master local|standalone] [--kafka] [--transaction-version 0|2]

--minutes ends it earlier: the round that runs then is the last one, and the copy is judged as at the end.
--ablation NAME takes a rule of the sink away: the campaign then has to fail. --kind and --point narrow the faults. A run that fails prints
how to repeat it, and the last visits of the gates. At the end a driver is away between decision and commit until its transactions time out.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.pipeline.sink_campaign.ablations import ABLATION, ABLATIONS
from tests.pipeline.sink_campaign.campaign import Campaign, run
from tests.pipeline.sink_campaign.faults import ALWAYS, CLUSTER_KINDS, EXECUTOR, KINDS, random_faults
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper
from tests.pipeline.sink_campaign.sparks import ClusterSpark, LocalSpark
from tests.pipeline.sink_campaign.world import World, start_server
from tests.support.spark_classes import make_archive, set_options

TRACE_SHOWN = 80


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, help="no further round begins after so long")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument(
        "--master", choices=("local", "standalone"), default="local", help="local[2], or two standalone workers of one core"
    )
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka instead of Barnabas")
    parser.add_argument("--transaction-version", type=int, choices=(0, 1, 2))
    parser.add_argument("--ablation", choices=sorted(ABLATIONS))
    parser.add_argument("--kind", action="append", choices=CLUSTER_KINDS, help="only these faults")
    parser.add_argument("--point", action="append", choices=ALWAYS, help="only at these points")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends with it
    directory = Path(tempfile.mkdtemp(prefix="barnabas-sink-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    make_archive()
    set_options(os.environ)
    begun_s = time.monotonic()
    randomness = random.Random(arguments.seed)
    is_cluster = arguments.master == "standalone"
    if not is_cluster and EXECUTOR in (arguments.kind or ()):
        parser.error("--kind executor needs --master standalone: local[2] has its executor in the driver")
    kinds = arguments.kind or (CLUSTER_KINDS if is_cluster else KINDS)
    rounds = random_faults(randomness, arguments.kills, kinds=kinds, points=arguments.point)
    environment = {ABLATION: arguments.ablation} if arguments.ablation else {}
    limit_s = math.inf if arguments.minutes is None else arguments.minutes * 60
    with contextlib.ExitStack() as owned:
        server = start_server(directory / "server", is_kafka=arguments.kafka, transaction_version=arguments.transaction_version)
        owned.callback(server.kill)
        keeper = GateKeeper()
        owned.callback(keeper.close)
        world = World(server)
        owned.callback(world.close)
        spark = (ClusterSpark if is_cluster else LocalSpark)(directory, server.bootstrap, keeper.port, environment, randomness)
        owned.callback(spark.stop)
        spark.start()
        campaign, anomaly = run(world, keeper, spark.start_driver, rounds, is_away=not arguments.ablation, limit_s=limit_s)
    report(campaign, keeper, world)
    print(f"{time.monotonic() - begun_s:.0f} s, {campaign.drivers_cpu_s + cpu_s():.0f} s of CPU")
    if anomaly is not None:
        print("\n".join(list(keeper.trace)[-TRACE_SHOWN:]))
        print(f"FOUND: {anomaly}\nagain: python -m tests.pipeline.sink_campaign {' '.join(repeated(arguments))}\ndata in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def report(campaign: Campaign, keeper: GateKeeper, world: World) -> None:
    kills = ", ".join(f"{count} {kind}" for kind, count in sorted(campaign.killed.items()))
    print(f"{campaign.killed.total()} faults ({kills}), {campaign.drivers_count} drivers, {world.rows_count} rows")
    print("visits: " + ", ".join(f"{point} {count}" for point, count in sorted(keeper.visits.items())))


def repeated(arguments: argparse.Namespace) -> list[str]:
    """The arguments of this run, with its seed."""
    words: list[str] = []
    for name, told in vars(arguments).items():
        option = f"--{name.replace('_', '-')}"
        for each in told if isinstance(told, list) else [told]:
            words += [option] if each is True else [] if each is None or each is False else [option, str(each)]
    return words


def cpu_s() -> float:
    """Of the server: drivers do not wait for their JVMs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
