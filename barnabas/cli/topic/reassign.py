"""Move the replicas of topics to other brokers, or give them another replication factor (AlterPartitionReassignments, KIP-455).

Shows which replicas move and asks. Without --from each replica stays unless its broker may have none, or has at least two more than
another; the racks of brokers are kept apart. `barnabas cluster reassign status` shows what is in progress.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics, partitions_of, replica_sizes
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.cli.output import Column, Output, confirm, human_bytes
from barnabas.cli.reassignment.cancel import cancel
from barnabas.cli.reassignment.moves import Move, in_progress, place, start, wait
from barnabas.cli.reassignment.plan import Assignment, Partition, spread
from barnabas.cli.reassignment.plan_file import PlanFile, read_plan, write_plan
from barnabas.cli.reassignment.throttle import parse_rate, release, throttle
from barnabas.cli.report import Outcome, report, report_nothing
from barnabas.cli.settings import resolve_for_change

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("replicas", "REPLICAS"),
    Column("new_replicas", "NEW REPLICAS"),
    Column("copy_bytes", "TO COPY", human_bytes, is_number=True),
)
SHOWN_MAX = 100
"""Partitions of the plan that a person is shown line by line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topics", nargs="*", metavar="TOPIC")
    add("--to-brokers", "--broker-list", default="", metavar="ID,…", help="the brokers that may have replicas (all)")
    add("-r", "--replication-factor", type=int, metavar="N", help="replicas of each partition (as many as now)")
    add(
        "--from",
        "--reassignment-json-file",
        dest="plan",
        metavar="FILE",
        help="a plan, the JSON of kafka-reassign-partitions; - is standard input",
    )
    add("--save", metavar="FILE", help="write the new replicas as such a plan")
    add("--save-current", metavar="FILE", help="write those of now, to come back to")
    add("--throttle", metavar="RATE", help="bytes a second that a broker copies at most, as in 10MB; --wait removes it at the end")
    add("--wait", action="store_true", help="until it is done, with a progress bar on a terminal")
    add("--cancel", action="store_true", help="end the moves of these topics: their replicas are those from before")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    _check(options)
    rate = None if options.throttle is None else parse_rate(options.throttle)
    output = Output(options.output)
    with Connection(settings) as connection:
        if options.cancel:
            get_topics(connection, options.topics)
            return cancel(connection, options, output)
        planned = read_plan(options.plan) if options.plan else PlanFile(_planned(connection, options), {})
        current, moving = _current(connection, planned.replicas), in_progress(connection)
        if options.save_current:
            write_plan(Path(options.save_current), {each: _settled(current[each], moving.get(each)) for each in planned.replicas})
        if options.save:
            write_plan(Path(options.save), planned.replicas)
        changed = {each: replicas for each, replicas in planned.replicas.items() if replicas != _wished(current[each], moving.get(each))}
        rows = _rows(connection, current, changed)
        if options.dry_run and output.is_data:
            output.data(rows)
            return DONE
        if not changed and not planned.directories:
            report_nothing(output, "nothing to move")
            return DONE
        if not confirm(_in_words(rows, planned), dry_run=options.dry_run, yes=options.yes):
            return DONE
        if rate is not None:
            touched = {name for name, _ in changed}
            all_moves = {each: move for each, move in moving.items() if each[0] in touched}
            all_moves |= {each: _move(current[each], replicas) for each, replicas in changed.items()}
            throttle(connection, all_moves, rate, connection.metadata().brokers)
        outcomes = _carry_out(connection, planned, changed, options)
    report(output, "partition", outcomes)
    if not options.wait and changed:
        output.line("in progress: barnabas cluster reassign status shows how far it is")
    return DONE


def _carry_out(connection: Connection, planned: PlanFile, changed: Assignment, options: argparse.Namespace) -> list[Outcome]:
    """Raises CommandError."""
    outcomes = start(connection, changed, "moving") if changed else []
    if planned.directories:
        place(connection, planned.directories)
    if options.wait:
        wait(connection, changed)
        outcomes = [each._replace(what="moved") if each.is_done else each for each in outcomes]
        if options.throttle is not None:
            release(connection, sorted({name for name, _ in changed}), sorted(connection.metadata().brokers))
    return outcomes


def _current(connection: Connection, planned: Assignment) -> Assignment:
    """The replicas of these topics. Raises RefusedError if the plan has a partition or a broker that is not there."""
    topics = get_topics(connection, dict.fromkeys(name for name, _ in planned))
    current = {(name, index): list(topics[name].partitions[index].replicas) for name, index in partitions_of(topics)}
    if missing := sorted(planned.keys() - current.keys()):
        raise RefusedError(f"there is no partition {', '.join(f'{name}-{index}' for name, index in missing)}")
    _check_brokers({broker for replicas in planned.values() for broker in replicas}, connection.metadata().brokers)
    return current


def _check_brokers(asked: set[int], known: Mapping[int, Any]) -> None:
    """Raises RefusedError."""
    if unknown := sorted(asked - known.keys()):
        raise RefusedError(f"there is no broker {', '.join(map(str, unknown))}; barnabas cluster info has those that are there")


def _check(options: argparse.Namespace) -> None:
    """Raises NotUnderstoodError."""
    if bool(options.topics) == bool(options.plan):
        raise NotUnderstoodError("say what moves: topics, or a plan by --from")
    if options.plan and (options.to_brokers or options.replication_factor is not None or options.cancel):
        raise NotUnderstoodError("--from says all: it goes without --to-brokers, --replication-factor and --cancel")
    if options.replication_factor is not None and options.replication_factor < 1:
        raise NotUnderstoodError(f"--replication-factor {options.replication_factor}: it is 1 or more")


def _planned(connection: Connection, options: argparse.Namespace) -> Assignment:
    """Raises CommandError."""
    topics = get_topics(connection, options.topics)
    nodes = connection.result(connection.admin.describe_cluster(request_timeout=connection.timeout_s)).nodes
    racks = {node.id: node.rack for node in nodes}
    if options.to_brokers:
        try:
            chosen = {int(word) for word in options.to_brokers.split(",")}
        except ValueError as e:
            raise NotUnderstoodError(f"--to-brokers {options.to_brokers}: it is numbers with commas between them") from e
        _check_brokers(chosen, racks)
        racks = {broker: racks[broker] for broker in sorted(chosen)}
    moving = in_progress(connection)
    current = {
        (name, index): _settled(list(topics[name].partitions[index].replicas), moving.get((name, index)))
        for name, index in partitions_of(topics)
    }
    needed = options.replication_factor or max(map(len, current.values()))
    if needed > len(racks):
        raise RefusedError(f"{needed} replicas need as many brokers, and there are {len(racks)}: --to-brokers, --replication-factor")
    return spread(current, racks, options.replication_factor)


def _settled(replicas: list[int], move: Move | None) -> list[int]:
    """The replicas without what a move in progress adds."""
    return replicas if move is None else [broker for broker in move.replicas if broker not in move.adding]


def _wished(replicas: list[int], move: Move | None) -> list[int]:
    """The replicas when the move in progress will be done."""
    return replicas if move is None else move.target


def _move(current: Sequence[int], replicas: Sequence[int]) -> Move:
    return Move(
        replicas=[*replicas, *(broker for broker in current if broker not in replicas)],
        adding=[broker for broker in replicas if broker not in current],
        removing=[broker for broker in current if broker not in replicas],
    )


def _rows(connection: Connection, current: Mapping[Partition, list[int]], changed: Assignment) -> list[dict[str, Any]]:
    sizes = replica_sizes(connection, connection.metadata().brokers) if changed else {}
    rows = []
    for each, replicas in sorted(changed.items()):
        move = _move(current[each], replicas)
        whole = max((sizes.get((each, broker), 0) for broker in current[each]), default=0)
        rows.append(
            {
                "topic": each[0],
                "partition": each[1],
                "replicas": current[each],
                "new_replicas": replicas,
                "adding": list(move.adding),
                "removing": list(move.removing),
                "copy_bytes": whole * len(move.adding),
            }
        )
    return rows


def _in_words(rows: Sequence[Mapping[str, Any]], planned: PlanFile) -> list[str]:
    lines = [
        f"move {row['topic']}-{row['partition']} from {','.join(map(str, row['replicas']))} to {','.join(map(str, row['new_replicas']))}"
        + (f", {human_bytes(row['copy_bytes'])} to copy" if row["adding"] else "")
        for row in rows[:SHOWN_MAX]
    ]
    if len(rows) > SHOWN_MAX:
        lines.append(f"and {len(rows) - SHOWN_MAX} partitions more; --dry-run --output json has all")
    lines += [f"put {name}-{index} on broker {broker} into {path}" for ((name, index), broker), path in planned.directories.items()]
    if len(rows) > 1:
        lines.append(f"{len(rows)} partitions, {human_bytes(sum(row['copy_bytes'] for row in rows))} to copy")
    return lines
