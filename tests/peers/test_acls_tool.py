"""kafka-acls, with the same words, once against Apache Kafka and once against Barnabas: the same answers, whatever their order."""

from __future__ import annotations

from collections.abc import Callable

from config.server import STANDARD_AUTHORIZER
from tests.support.java_host import JavaHost, ToolResult
from tests.support.process import ServerProcess

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS", "node.id": "1"}

COMMANDS = [
    "--list",
    "--add --allow-principal User:alice --operation Read --topic orders",
    "--add --allow-principal User:alice --operation Read --topic orders",
    "--add --allow-principal User:alice --producer --topic payments",
    "--add --allow-principal User:alice --consumer --topic payments --group readers",
    "--add --allow-principal User:alice --producer --idempotent --topic payments --transactional-id tx",
    "--add --deny-principal User:bob --deny-host 10.0.0.1 --allow-principal User:* --allow-host * --operation All --topic logs- "
    "--resource-pattern-type prefixed",
    "--add --allow-principal User:CN=a,O=b --operation Describe --cluster",
    "--add --allow-principal User:alice --operation CreateTokens --user-principal User:carol",
    "--add --allow-principal User:alice --operation Describe --delegation-token token",
    "--add --allow-principal User:alice --operation TwoPhaseCommit --transactional-id tx",
    "--add --allow-principal nobody --operation Read --topic orders",
    "--add --allow-principal User:alice --operation Write --group readers",
    "--list",
    "--list --topic logs-2026 --resource-pattern-type match",
    "--list --topic orders --resource-pattern-type any",
    "--list --principal User:bob",
    "--list --cluster",
    "--remove --force --allow-principal User:alice --operation Read --topic orders",
    "--remove --force --topic payments",
    "--remove --force --topic none",
    "--list",
    "--remove --force --topic logs-1 --resource-pattern-type match",
    "--list",
]


def test_rules_are_managed_as_in_kafka(
    make_kafka: Callable[..., ServerProcess], make_barnabas: Callable[..., ServerProcess], java_host: JavaHost
) -> None:
    servers = make_kafka(SETTINGS), make_barnabas(SETTINGS)

    for command in COMMANDS:
        theirs, ours = (told(java_host, server, command) for server in servers)
        assert ours == theirs, command


def told(java_host: JavaHost, server: ServerProcess, command: str) -> tuple[int, list[str]]:
    """The exit status, and what is printed, in the order of the alphabet."""
    printed: ToolResult = java_host.tool("AclCommand", "--bootstrap-server", server.bootstrap, *command.split(), expected_status=None)
    return printed.status, sorted(line.strip() for line in printed.stdout.splitlines())
