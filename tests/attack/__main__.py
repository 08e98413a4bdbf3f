"""Attacks a broker of this checkout and prints what it did to it, its clients and its memory.

    python -m tests.attack --seconds 900 [--secured | --strangers] [--seed 7] [--only NAME]… [--repeat N] [--shared] [--stacks] [--census]
        [--settle SECONDS] [--save [FILE]]

With --secured attackers are logged in over SASL_SSL as a user with rights. With --strangers they are not: other attacks come with it.

900 seconds are the full campaign: every count as the attacks were meant, 100,000 mutated requests, a minute for memory to come back.
A shorter one does less of each. Ends with status 1 when the broker gave way: a traceback, memory or descriptors that stay, silence.
The table judges holds of the loop (50 ms of CPU) and an honest client's latency (p99 25 ms, maximum 150 ms above an echo process's) too;
these depend on the machine and change no status.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.attack.attacks import ATTACKS, STRANGERS
from tests.attack.campaign import Campaign, Door, Plan
from tests.attack.report import HEADING, Row, growth, line, notes, save, slow_steps
from tests.support.process import cache_dir


def main() -> int:
    arguments = _parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the broker ends with the campaign
    known = STRANGERS if arguments.strangers else ATTACKS
    attacks = [attack for attack in known if not arguments.only or attack.name in arguments.only] * arguments.repeat
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-attack-"))
    plan = Plan.of_length(
        arguments.seconds, len(known), arguments.seed, is_shared=arguments.shared or arguments.repeat > 1, with_stacks=arguments.stacks
    )
    if arguments.secured or arguments.strangers:
        plan = replace(plan, door=Door.STRANGERS if arguments.strangers else Door.LOGGED_IN)
    if arguments.settle is not None:
        plan = replace(plan, settle_s=arguments.settle)
    if arguments.census:
        plan = replace(plan, with_census=True)
    print(f"seed {arguments.seed}, scale {plan.scale:.2f}, data in {directory}\n\n{HEADING}", flush=True)
    rows: list[Row] = []
    for row in Campaign(directory, plan, attacks).run():
        rows.append(row)
        print(line(row), flush=True)
    print(f"\n{slow_steps(rows)}")
    print(growth(rows))
    print(notes(rows))
    if arguments.save:
        save(rows, arguments.save)
    if any(row.faults for row in rows):
        print(f"\nThe brokers' logs are in {directory}")
        return 1
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--only", action="append", choices=sorted({attack.name for attack in (*ATTACKS, *STRANGERS)}))
    parser.add_argument("--repeat", type=int, default=1, help="all of them so often, at one broker: memory must not grow")
    parser.add_argument("--settle", type=float, help="seconds that memory may take to come back (default: 60 in a full campaign, else 10)")
    doors = parser.add_mutually_exclusive_group()
    doors.add_argument("--secured", action="store_true", help="attackers are logged in, at a broker with TLS, SASL and an authorizer")
    doors.add_argument("--strangers", action="store_true", help="attackers are not logged in, at such a broker")
    parser.add_argument("--shared", action="store_true", help="one broker for all, so that what one attack leaves is there at the next")
    parser.add_argument("--stacks", action="store_true", help="write what holds the loop to stacks.txt; it costs some milliseconds itself")
    parser.add_argument("--census", action="store_true", help="write what a broker's memory consists of to census.txt after its attack")
    parser.add_argument("--save", type=Path, nargs="?", const=cache_dir() / "attack.json", help="the rows as JSON")
    parser.add_argument("--directory", type=Path, help="where data and logs go (default: a temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
