"""The client commands by their words, and the other words that mean them: those of kafkactl, rpk and Kafka's tools.

A verb's module has `add_arguments(parser)` and `run(options) -> exit code`; it is imported when it is called.
"""

from __future__ import annotations

from typing import NamedTuple

Words = tuple[str, ...]


class Verb(NamedTuple):
    """`module` is inside barnabas.cli; `summary` is its line in the help."""

    module: str
    summary: str


VERBS: dict[Words, Verb] = {
    ("context", "list"): Verb("context.list_contexts", "the clusters that are known by name"),
    ("context", "show"): Verb("context.show", "one of them, without its passwords"),
    ("context", "use"): Verb("context.use", "choose the one that counts when no address is given"),
    ("context", "add"): Verb("context.add", "remember a cluster by a name"),
    ("context", "remove"): Verb("context.remove", "forget one"),
    ("produce",): Verb("produce.produce", "write records, from lines or JSON"),
    ("consume",): Verb("consume.consume", "print records, from the beginning and on"),
    ("topic", "list"): Verb("topic.list_topics", "topics with partitions, records and size"),
    ("topic", "describe"): Verb("topic.describe", "partitions, leaders, ISR, settings, and groups that read it"),
    ("topic", "create"): Verb("topic.create", "make topics"),
    ("topic", "clone"): Verb("topic.clone", "make a topic like another one, without its records"),
    ("topic", "alter"): Verb("topic.alter", "set or delete settings of topics"),
    ("topic", "add-partitions"): Verb("topic.add_partitions", "give topics more partitions"),
    ("topic", "delete"): Verb("topic.delete", "delete topics with their records"),
    ("topic", "reassign"): Verb("topic.reassign", "move replicas to other brokers, or have more or fewer of them"),
    ("topic", "trim"): Verb("topic.trim", "delete records before an offset or a time"),
    ("config", "list"): Verb("config.list_configs", "resources with the settings that were set for them"),
    ("config", "describe"): Verb("config.describe", "settings with value, source, default and documentation"),
    ("config", "set"): Verb("config.set_config", "set settings of topics, brokers, groups and client metrics"),
    ("config", "delete"): Verb("config.delete", "delete such settings"),
    ("acl", "list"): Verb("acl.list_acls", "ACLs, all or some"),
    ("acl", "create"): Verb("acl.create", "allow or deny operations"),
    ("acl", "delete"): Verb("acl.delete", "delete ACLs"),
    ("acl", "test"): Verb("acl.decide", "whether somebody may do something, and by which rule"),
    ("user", "list"): Verb("user.list_users", "users with SCRAM credentials"),
    ("user", "create"): Verb("user.create", "make a user"),
    ("user", "set-password"): Verb("user.set_password", "change a user's password"),
    ("user", "delete"): Verb("user.delete", "delete a user's credentials"),
    ("quota", "list"): Verb("quota.list_quotas", "quotas of users, client ids and addresses"),
    ("quota", "set"): Verb("quota.set_quota", "set quotas"),
    ("quota", "delete"): Verb("quota.delete", "delete quotas"),
    ("transaction", "list"): Verb("transaction.list_transactions", "transactional ids with their states"),
    ("transaction", "describe"): Verb("transaction.describe", "producer, state, age and partitions of a transaction"),
    ("transaction", "producers"): Verb("transaction.producers", "producers of a topic, and what they hold open"),
    ("transaction", "find-hanging"): Verb("transaction.find_hanging", "transactions that nobody will end, by partition"),
    ("transaction", "abort"): Verb("transaction.abort", "end a hanging transaction in one partition"),
    ("cluster", "info"): Verb("cluster.info", "id, brokers, topics and partitions"),
    ("cluster", "health"): Verb("cluster.health", "exit code 4 if partitions lack leaders or replicas"),
    ("cluster", "reassign", "status"): Verb("cluster.reassign_status", "replicas that are being moved, and how far they are"),
    ("cluster", "reassign", "cancel"): Verb("cluster.reassign_cancel", "end such moves"),
    ("cluster", "elect-leaders"): Verb("cluster.elect_leaders", "let preferred replicas lead, or any that is left"),
    ("cluster", "log-dirs"): Verb("cluster.log_dirs", "log directories: replicas, bytes, room, state"),
    ("cluster", "cordon"): Verb("cluster.cordon", "give log directories no new partitions"),
    ("cluster", "uncordon"): Verb("cluster.uncordon", "give them some again"),
    ("cluster", "quorum"): Verb("cluster.quorum", "the metadata quorum: leader, voters, observers"),
    ("cluster", "quorum", "add-voter"): Verb("cluster.add_voter", "let a controller vote"),
    ("cluster", "quorum", "remove-voter"): Verb("cluster.remove_voter", "take a controller's vote away"),
    ("cluster", "features"): Verb("cluster.features", "features and their levels"),
    ("cluster", "features", "upgrade"): Verb("cluster.features_upgrade", "raise them, to a release or one by one"),
    ("cluster", "features", "downgrade"): Verb("cluster.features_downgrade", "lower them"),
    ("cluster", "unregister"): Verb("cluster.unregister", "forget a broker that is gone"),
    ("log", "segments"): Verb("log.segments", "segments of a data folder, read without a broker"),
    ("log", "batches"): Verb("log.batches", "record batches, and their records"),
    ("log", "indexes"): Verb("log.indexes", "entries of indexes"),
    ("log", "snapshots"): Verb("log.snapshots", "producers in snapshots"),
    ("log", "checkpoints"): Verb("log.checkpoints", "checkpoints and leader epochs"),
    ("log", "verify"): Verb("log.verify", "exit code 4 if a data folder is damaged"),
    ("perf", "produce"): Verb("perf.produce", "write a load of records: rate and latency"),
    ("perf", "consume"): Verb("perf.consume", "read a topic as fast as it goes"),
    ("top",): Verb("top.top", "what brokers, topics and groups do just now"),
    ("console",): Verb("console", "show clusters in a browser"),
    ("completion",): Verb("completion", "what completes these commands in bash, zsh or fish"),
    ("completion", "names"): Verb("completion_names", "names of topics, groups or contexts, for a shell to complete"),
    ("group", "list"): Verb("group.list_groups", "groups with state, members and total lag"),
    ("group", "describe"): Verb("group.describe", "offsets and lag by partition, in records and in time"),
    ("group", "reset"): Verb("group.reset", "set where a group goes on"),
    ("group", "delete"): Verb("group.delete", "delete groups"),
    ("group", "delete-offsets"): Verb("group.delete_offsets", "delete a group's offsets of topics"),
    ("group", "remove-member"): Verb("group.remove_member", "remove members, such as static ones that are gone"),
}

ALIASES: dict[Words, Words] = {
    ("contexts",): ("context", "list"),
    ("context", "create"): ("context", "add"),
    ("context", "delete"): ("context", "remove"),
    ("config", "use-context"): ("context", "use"),
    ("config", "get-contexts"): ("context", "list"),
    ("config", "current-context"): ("context", "show"),
    ("topic", "produce"): ("produce",),
    ("topic", "consume"): ("consume",),
    ("get", "topics"): ("topic", "list"),
    ("topics",): ("topic", "list"),
    ("topic", "ls"): ("topic", "list"),
    ("describe", "topic"): ("topic", "describe"),
    ("create", "topic"): ("topic", "create"),
    ("alter", "topic"): ("topic", "alter"),
    ("clone", "topic"): ("topic", "clone"),
    ("topic", "alter-config"): ("topic", "alter"),
    ("delete", "topic"): ("topic", "delete"),
    ("topic", "rm"): ("topic", "delete"),
    ("topic", "trim-prefix"): ("topic", "trim"),
    ("topic", "delete-records"): ("topic", "trim"),
    ("delete", "records"): ("topic", "trim"),
    ("config", "alter"): ("config", "set"),
    ("config", "get"): ("config", "describe"),
    ("config", "unset"): ("config", "delete"),
    ("acls",): ("acl", "list"),
    ("acl", "add"): ("acl", "create"),
    ("acl", "remove"): ("acl", "delete"),
    ("get", "acls"): ("acl", "list"),
    ("create", "acl"): ("acl", "create"),
    ("delete", "acl"): ("acl", "delete"),
    ("users",): ("user", "list"),
    ("get", "users"): ("user", "list"),
    ("user", "add"): ("user", "create"),
    ("user", "update"): ("user", "set-password"),
    ("quotas",): ("quota", "list"),
    ("quota", "describe"): ("quota", "list"),
    ("quota", "alter"): ("quota", "set"),
    ("txn", "list"): ("transaction", "list"),
    ("txn", "describe"): ("transaction", "describe"),
    ("txn", "find-hanging"): ("transaction", "find-hanging"),
    ("txn", "abort"): ("transaction", "abort"),
    ("txn", "describe-producers"): ("transaction", "producers"),
    ("transaction", "describe-producers"): ("transaction", "producers"),
    ("get", "brokers"): ("cluster", "info"),
    ("cluster", "metadata"): ("cluster", "info"),
    ("cluster", "reassign"): ("cluster", "reassign", "status"),
    ("cluster", "partitions", "move-status"): ("cluster", "reassign", "status"),
    ("cluster", "partitions", "move-cancel"): ("cluster", "reassign", "cancel"),
    ("cluster", "partitions", "move"): ("topic", "reassign"),
    ("topic", "move"): ("topic", "reassign"),
    ("alter", "partition-assignment"): ("topic", "reassign"),
    ("cluster", "logdirs"): ("cluster", "log-dirs"),
    ("cluster", "logdirs", "describe"): ("cluster", "log-dirs"),
    ("cluster", "quorum", "describe"): ("cluster", "quorum"),
    ("cluster", "quorum", "add-controller"): ("cluster", "quorum", "add-voter"),
    ("cluster", "quorum", "remove-controller"): ("cluster", "quorum", "remove-voter"),
    ("cluster", "features", "describe"): ("cluster", "features"),
    ("cluster", "leader-election"): ("cluster", "elect-leaders"),
    ("cluster", "unregister-broker"): ("cluster", "unregister"),
    ("log", "dump"): ("log", "batches"),
    ("log", "audit"): ("log", "verify"),
    ("groups",): ("group", "list"),
    ("group", "ls"): ("group", "list"),
    ("get", "consumer-groups"): ("group", "list"),
    ("get", "groups"): ("group", "list"),
    ("describe", "consumer-group"): ("group", "describe"),
    ("describe", "group"): ("group", "describe"),
    ("group", "seek"): ("group", "reset"),
    ("group", "reset-offsets"): ("group", "reset"),
    ("reset", "consumer-group-offset"): ("group", "reset"),
    ("delete", "consumer-group"): ("group", "delete"),
    ("delete", "group"): ("group", "delete"),
    ("group", "offset-delete"): ("group", "delete-offsets"),
    ("delete", "consumer-group-offset"): ("group", "delete-offsets"),
}
"""Other words that mean a command. Of two that fit, the longer one counts."""


def find(arguments: list[str]) -> tuple[Words, list[str]] | None:
    """The words of the command that the arguments begin with, and the other arguments; None if they begin with none."""
    for count in (3, 2, 1):
        words = tuple(arguments[:count])
        words = ALIASES.get(words, words)
        if len(arguments) >= count and words in VERBS:
            return words, arguments[count:]
    return None


def family(name: str) -> dict[Words, Verb]:
    """The commands that begin with that word."""
    return {words: verb for words, verb in VERBS.items() if words[0] == name}


def next_words(words: Words) -> list[str]:
    """What may follow these words in commands, each once."""
    count = len(words)
    return list(dict.fromkeys(known[count] for known in VERBS if known[:count] == words and len(known) > count))
