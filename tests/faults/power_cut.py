"""Cuts the power of the server's disk at random moments under load, with every append fsynced before its ack.

    python -m tests.faults.power_cut --rounds 10 [--seed 7] [--server kafka]

With flush.messages=1 no acked record and no acked commit may be lost even so. Needs root: tests/support/power.py.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign import Campaign, Round
from tests.support.fixtures import SERVERS, new_server
from tests.support.kafka import KafkaServer
from tests.support.power import PowerCutDisk, missing_power_cut

# The topic's own setting, and the broker's for what it keeps itself: the group's offsets.
TOPIC_CONFIG = {"flush.messages": "1"}
SERVER_SETTINGS = {"log.flush.interval.messages": "1"}


def run(rounds: int, seed: int, directory: Path, *, server_kind: str | None = None) -> list[Round]:
    """The rounds, each printed as it ends; stops after the first one with an anomaly."""
    disk = PowerCutDisk(directory / "disk", seed)
    server = new_server(directory, SERVER_SETTINGS, kind=server_kind)
    server.data_dir = disk.mount_point / "data"
    results: list[Round] = []

    def cut_power() -> None:
        # Nobody hears from a server after its power went off. While it ran on, an fdatasync that met the cut returned 0 though its
        # data was gone (6 of 100 cuts under a plain loop of write and fdatasync), and the server acknowledged what it was told.
        server.freeze()
        disk.cut()
        server.kill()
        disk.unmount()
        disk.mount()

    try:
        campaign = Campaign(server, cut_power, seed=seed, topic_config=TOPIC_CONFIG)
        if isinstance(server, KafkaServer):
            # Apache Kafka's own format step does not fsync what it writes, and would not start after the first cut.
            os.sync()
        try:
            while len(results) < rounds and not any(result.anomalies for result in results):
                results.append(campaign.run_round())
                print(results[-1], flush=True)
        finally:
            campaign.close()
    finally:
        server.kill()
        disk.close()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--server", choices=sorted(SERVERS), default="barnabas")
    arguments = parser.parse_args()
    reason = missing_power_cut()
    if reason:
        print(reason)
        return 2
    with tempfile.TemporaryDirectory(prefix="barnabas-power-") as directory:
        print(f"seed {arguments.seed}", flush=True)
        results = run(arguments.rounds, arguments.seed, Path(directory), server_kind=arguments.server)
    failed = [result.number for result in results if result.anomalies]
    print(f"{len(results)} power cuts, {sum(result.acked for result in results)} acked, rounds with anomalies: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
