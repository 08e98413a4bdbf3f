"""Take a controller's vote in the metadata quorum away (KIP-853), such as that of a node that is gone."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.quorum_facts import describe_quorum
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError, check
from barnabas.cli.output import Output, confirm
from barnabas.cli.settings import resolve_for_change
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.uuids import uuid_to_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("node", type=int, metavar="NODE", help="the controller's node.id")
    add("--directory-id", metavar="ID", help="of the voter, if two have this node.id")
    arguments.add_change(parser, asks=True)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        (quorum,) = describe_quorum(connection).topics[0].partitions
        found = [each for each in quorum.current_voters if each.replica_id == options.node]
        if options.directory_id is not None:
            found = [each for each in found if uuid_to_text(each.replica_directory_id) == options.directory_id]
        if not found:
            raise RefusedError(f"node {options.node} has no vote; barnabas cluster quorum has all")
        if len(found) > 1:
            raise NotUnderstoodError(f"{len(found)} voters have node.id {options.node}: --directory-id")
        voter = found[0]
        plan = [
            f"take the vote of node {options.node} away: {len(quorum.current_voters) - 1} of {len(quorum.current_voters)} voters remain"
        ]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        wire = connection.wire()
        answer = wire.request(
            RemoveRaftVoterRequest(
                cluster_id=wire.request(DescribeClusterRequest()).cluster_id,
                voter_id=voter.replica_id,
                voter_directory_id=voter.replica_directory_id,
            )
        )
        check(answer.error_code, answer.error_message)
    Output("table").line(f"node {options.node} has no vote any more")
    return DONE
