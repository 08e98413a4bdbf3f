"""Sends a broker of this checkout inputs of every kind on both its listeners, and prints what they did to it.

    python -m tests.fuzz [--seconds 120 | --rounds N] [--secured | --strangers] [--seed 7] [--stacks] [--directory DIR]

With --secured the senders are logged in, at a broker with TLS, SASL and an authorizer: in turn as a user with rights and as a super user.
With --strangers they are not: nothing but a login is answered.
A tenth of the time goes to what controllers obey, against a broker of its own. Ends with status 1 when a broker gave way: a wrong
answer, a traceback, memory or descriptors that stay, silence. Holds of the loop are printed, not judged: they depend on the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.attack.campaign import Door
from tests.fuzz.inputs import Density, Stage
from tests.fuzz.report import lines_of
from tests.fuzz.run import Plan, Run

ORDERS_SHARE = 0.1
LONG_RUN_S = 600.0
SHORT_DENSITY = Density(versions_max=1, number_share=0.5, wide_share=0.05)
LONG_DENSITY = Density(wide_share=0.1)


def main() -> int:
    arguments = _parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the broker ends with the run
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-fuzz-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    has_faults = False
    for stage, share in ((Stage.ALL, 1 - ORDERS_SHARE), (Stage.ORDERS, ORDERS_SHARE)):
        plan = Plan(
            arguments.seed,
            LONG_DENSITY if arguments.seconds >= LONG_RUN_S else SHORT_DENSITY,
            rounds=arguments.rounds,
            seconds=None if arguments.rounds else arguments.seconds * share,
            with_stacks=arguments.stacks,
            door=Door.STRANGERS if arguments.strangers else Door.LOGGED_IN if arguments.secured else Door.OPEN,
        )
        report = Run(directory, stage, plan).run()
        print("\n" + "\n".join(lines_of(report)), flush=True)
        has_faults = has_faults or bool(report.faults)
    if has_faults:
        print(f"\nThe brokers' logs are in {directory}")
    elif arguments.directory is None:
        shutil.rmtree(directory)
    return 1 if has_faults else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rounds", type=int, help="so many rounds of every API's inputs, however long they take")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    doors = parser.add_mutually_exclusive_group()
    doors.add_argument("--secured", action="store_true", help="senders are logged in, at a broker with TLS, SASL and an authorizer")
    doors.add_argument("--strangers", action="store_true", help="senders are not logged in, at such a broker")
    parser.add_argument("--stacks", action="store_true", help="write what holds the loop to stacks.txt; it costs some milliseconds itself")
    parser.add_argument("--directory", type=Path, help="where data and logs go (default: a temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
