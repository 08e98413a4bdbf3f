"""Kills the server with SIGKILL at random moments under load and checks that no acked record is lost, doubled or moved.

    python -m tests.faults.crash --rounds 50 [--seed 7] [--server kafka] [--directory DIR]

Prints a line for each round and ends with status 1 when a round shows an anomaly; the data stays for a look.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign import Campaign, Round
from tests.support.fixtures import SERVERS, new_server


def run(rounds: int, seed: int, directory: Path, *, server_kind: str | None = None) -> list[Round]:
    """The rounds, each printed as it ends; stops after the first one with an anomaly, so that its data can be looked at."""
    server = new_server(directory, kind=server_kind)
    results: list[Round] = []
    try:
        campaign = Campaign(server, server.kill, seed=seed)
        try:
            while len(results) < rounds and not any(result.anomalies for result in results):
                results.append(campaign.run_round())
                print(results[-1], flush=True)
            if not results[-1].anomalies:
                campaign.check_group_reaches_end()
        finally:
            campaign.close()
    finally:
        server.kill()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--server", choices=sorted(SERVERS), default="barnabas")
    parser.add_argument("--directory", type=Path, help="where the data and the log go (default: a temporary folder)")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-crash-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    results = run(arguments.rounds, arguments.seed, directory, server_kind=arguments.server)
    failed = [result.number for result in results if result.anomalies]
    print(f"{len(results)} rounds, {sum(result.acked for result in results)} acked, rounds with anomalies: {failed or 'none'}")
    if failed:
        return 1
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
