"""`python -m tests.simulation --seeds N [--first S]`, or `--seed S [--trace]` to see one. `--stock`: with stock clients.
`--transactions`: with transactional clients. `--security`: with logins, rights and secrets that are withdrawn;
it goes with `--transactions` too.
`--nodes 3` or `5`: a cluster."""

from __future__ import annotations

import argparse
import platform
import sys
from functools import partial

from tests.simulation.campaign import describe, run_campaign
from tests.simulation.cluster_world import ClusterWorld, FiveNodesWorld
from tests.simulation.secured.cluster import SecuredClusterWorld
from tests.simulation.secured.transactions import SecuredTransactionClusterWorld, SecuredTransactionWorld
from tests.simulation.secured.world import SecuredWorld
from tests.simulation.stock_world import StockWorld
from tests.simulation.transaction_cluster import TransactionClusterWorld
from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.world import World, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run a broker in simulated worlds.")
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happened")
    parser.add_argument("--hash", action="store_true", help="with --seed: print the hash of its trace and nothing else")
    parser.add_argument("--stock", action="store_true", help="aiokafka's clients instead of thin ones")
    parser.add_argument("--transactions", action="store_true", help="transactional clients and their zombies")
    parser.add_argument("--security", action="store_true", help="logins, and an administrator who withdraws rights and secrets")
    parser.add_argument("--nodes", type=int, choices=(1, 3, 5), default=1, help="how many brokers form the cluster")
    options = parser.parse_args()
    kinds: dict[tuple[bool, bool, bool], type[World]] = {  # by --security, --transactions, and whether there are several nodes
        (True, True, False): SecuredTransactionWorld,
        (True, True, True): SecuredTransactionClusterWorld,
        (True, False, False): SecuredWorld,
        (True, False, True): SecuredClusterWorld,
        (False, True, False): TransactionWorld,
        (False, True, True): TransactionClusterWorld,
    }
    usual = StockWorld if options.stock else {1: World, 3: ClusterWorld, 5: FiveNodesWorld}[options.nodes]
    kind = kinds.get((options.security, options.transactions, options.nodes > 1), usual)
    run = partial(simulate, make=kind)
    if options.seed is None:
        print(f"seeds {options.first} to {options.first + options.seeds - 1}, Python {platform.python_version()}", flush=True)
        totals = run_campaign(range(options.first, options.first + options.seeds), lambda text: print(text, flush=True), run)
        return 1 if totals.failures else 0
    outcome = run(options.seed, keep_all=options.trace)
    if options.hash:
        print(outcome.trace_hash)
        return 0
    if options.trace:
        print("\n".join(outcome.lines))
    print(
        describe(outcome) if outcome.findings else f"seed {outcome.seed} ({outcome.profile}) kept every promise, trace {outcome.trace_hash}"
    )
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
