"""Remove members from a group, such as static ones that will not come back (LeaveGroup). One that lives joins again."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError, check
from barnabas.cli.group.facts import get_groups
from barnabas.cli.output import Output, confirm
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

REASON = "removed by barnabas group remove-member"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("group", metavar="GROUP")
    add("-m", "--member", "--member-id", action="append", default=[], metavar="ID", help="as `group describe --output wide` has it")
    add("-i", "--instance", "--group-instance-id", action="append", default=[], metavar="ID", help="of a static member")
    add("--all", action="store_true", help="all members")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    if not (options.member or options.instance or options.all):
        raise NotUnderstoodError("say who: --member ID, --instance ID or --all")
    with Connection(settings) as connection:
        group = get_groups(connection, [options.group])[options.group]
        chosen = [
            member
            for member in group.members
            if options.all or member.member_id in options.member or (member.group_instance_id or "") in options.instance
        ]
        known = {member.member_id for member in chosen} | {member.group_instance_id for member in chosen}
        if missing := [name for name in (*options.member, *options.instance) if name not in known]:
            raise RefusedError(f"group {options.group} has no member {', '.join(missing)}; barnabas group describe -o wide has them")
        if not chosen:
            raise RefusedError(f"group {options.group} has no members")
        plan = [f"remove {member.client_id} ({member.host.lstrip('/')}), {member.member_id}" for member in chosen]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        # A static member is named by its instance alone, as Kafka's administrator does: it may have rejoined under another id.
        members = [
            MemberIdentity(member_id="", group_instance_id=member.group_instance_id, reason=REASON)
            if member.group_instance_id
            else MemberIdentity(member_id=member.member_id, reason=REASON)
            for member in chosen
        ]
        answer = connection.wire(group.coordinator.id).request(LeaveGroupRequest(group_id=options.group, members=members))
    check(answer.error_code)
    outcomes = [Outcome.of_wire(each.group_instance_id or each.member_id, each.error_code, None, "removed") for each in answer.members]
    report(Output(options.output), "member", outcomes)
    return DONE
