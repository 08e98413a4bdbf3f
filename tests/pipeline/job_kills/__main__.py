"""Kills `compact` and `replay` with SIGKILL at random points of theirs, then lets them run to the end, and judges what they have made.

    python -m tests.pipeline.job_kills --kills 50 [--seed 7] [--job compact] [--job replay] [--point compact:linked] [--kafka]

A round is an archive with one to three kills, on a file system that exchanges folders, or on one that cannot. Ends with status 1 and the
data kept when something is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.clients.topics import create_topic
from tests.pipeline.job_kills import kills
from tests.pipeline.job_kills.gated_command import EXCHANGE_POINTS, MOVE_POINTS, REPLAY_POINTS, command_line, environment
from tests.pipeline.job_kills.kills import Kill
from tests.pipeline.made_archive import TIME_MS, value_of
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper
from tests.pipeline.sink_campaign.world import start_server
from tests.pipeline.spark_support import CHECKOUT
from tests.support.process import ServerProcess
from tests.support.spark_classes import make_archive as make_archive_of_classes
from tests.support.spark_classes import set_options

JOBS = ("compact", "replay")
KILLS_PER_ROUND_MAX = 3
RECORDS_PER_STEP = 8
RUN_TIMEOUT_S = 300
OFTEN = {"compact:hidden": kills.FILES - 1, "compact:published": 1, "task:opening": 2, "task:opened": 2, "task:written": 2}
"""How often a run passes a point before it goes on for good, where that is more than once; an unfinished run passes it less often."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--job", action="append", choices=JOBS, help="only this one")
    parser.add_argument("--point", action="append", choices=sorted({*EXCHANGE_POINTS, *MOVE_POINTS, *REPLAY_POINTS}), help="only there")
    parser.add_argument("--kafka", action="store_true", help="replay to Apache Kafka instead of Barnabas")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-jobs-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    make_archive_of_classes()
    set_options(os.environ)
    randomness = random.Random(arguments.seed)
    keeper, begun_s, done, problems = GateKeeper(), time.monotonic(), 0, list[str]()
    server = start_server(directory / "server", is_kafka=arguments.kafka, transaction_version=None)
    try:
        while done < arguments.kills and not problems:
            job = randomness.choice(arguments.job or JOBS)
            chosen = chosen_kills(randomness, job, arguments.point)
            folder = directory / str(done)
            folder.mkdir()
            try:
                problems = of_compact(keeper, folder, chosen) if job == "compact" else of_replay(keeper, folder, chosen, server)
            except AssertionError as error:
                problems = [str(error)]
            done += len(chosen)
            print(f"{time.monotonic() - begun_s:6.0f} s  {done:3} {job}: {', then '.join(map(str, chosen))}", flush=True)
            if not problems:
                shutil.rmtree(folder)
    finally:
        keeper.close()
        server.kill()
    print(f"{done} kills; " + ("nothing is wrong" if not problems else f"FOUND: {problems}; data in {directory}"))
    if problems:
        return 1
    shutil.rmtree(directory)
    return 0


def chosen_kills(randomness: random.Random, job: str, points: list[str] | None) -> list[Kill]:
    """Those of a round. A later run may have less to do: only its first visit of a point is sure."""
    found: list[Kill] = []
    for _ in range(randomness.randint(1, KILLS_PER_ROUND_MAX)):
        moves = job == "compact" and randomness.random() < 0.6
        usual = REPLAY_POINTS if job == "replay" else MOVE_POINTS if moves else EXCHANGE_POINTS
        possible = [point for point in usual if points is None or point in points] or list(usual)
        point = randomness.choice(possible)
        found.append(Kill(point, randomness.randrange(OFTEN.get(point, 1)) if not found else 0, moves))
    return found


def of_compact(keeper: GateKeeper, folder: Path, chosen: list[Kill]) -> list[str]:
    """Three days are merged; a run that is killed has done one of them at most."""
    archive = folder / "archive"
    expected = kills.make_archive(archive)
    reader = kills.Reader(archive)
    words = ["compact", str(archive), "--master", "local[1]"]
    try:
        for kill in chosen:
            kills.run_and_kill(keeper, kill, folder, words)
        run_to_the_end(keeper, folder, words)
    finally:
        reader.finish()
    return reader.problems + kills.problems_of(archive, expected)


def of_replay(keeper: GateKeeper, folder: Path, chosen: list[Kill], server: ServerProcess) -> list[str]:
    archive, topic = folder / "archive", f"replay-{folder.name}"
    made = kills.make_archive(archive)
    create_topic(server, topic, config={"retention.ms": "-1"})
    words = kills.replay_words(server, str(archive), topic, records_per_step=RECORDS_PER_STEP)
    for kill in chosen:
        kills.run_and_kill(keeper, kill, folder, words)
    run_to_the_end(keeper, folder, words)
    found, expected = kills.read_committed(server, topic, 0), [(value_of(0, offset), TIME_MS) for _, _, offset in made]
    problems = [] if found == expected else [f"{len(found)} records instead of {len(expected)}: {found[:3]} … {found[-3:]}"]
    return problems + [f"{each} is open" for each in kills.open_transactions(server)]


def run_to_the_end(keeper: GateKeeper, folder: Path, words: list[str]) -> None:
    """AssertionError if it fails."""
    outcome = subprocess.run(
        command_line(*words),
        cwd=CHECKOUT,
        env=environment(folder / "modules", keeper.port),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    assert outcome.returncode == 0, f"the last run failed: {outcome.stderr[-2000:]}"


if __name__ == "__main__":
    sys.exit(main())
