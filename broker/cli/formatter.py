"""What `barnabas format` writes: each directory's identity, what a new cluster begins with, and who votes in its metadata quorum.

The options, the refusals, the lines that are printed and the files are those of Kafka's tool: `bootstrap.checkpoint` in every directory
has the features, and with dynamic voters the metadata directory has the snapshot 0-0 of the metadata log, with kraft.version and the
voters. What is not here yet (broker/metadata/features.py) is left at level 0, also where a release of Kafka's would begin with more.

SCRAM credentials (--add-scram) are among the first records of the cluster. Unlike Kafka's tool this one prints nothing of their keys.

A node without a controller listener, as the shipped configuration is, is its own quorum: it needs none of the options, and takes
--standalone for what it is anyway.

Source: kafka.tools.StorageTool, org.apache.kafka.metadata.storage.Formatter, org.apache.kafka.raft.DynamicVoters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from broker.metadata.feature_levels import FEATURES, METADATA_VERSIONS, MetadataVersion, default_level, find_dependency, find_release
from broker.metadata.features import (
    KRAFT_VERSION_FEATURE,
    KRAFT_VERSION_MAX,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    METADATA_VERSION_SCRAM,
    NOT_SUPPORTED,
    SUPPORTED,
)
from broker.metadata.snapshot_writer import snapshot_batches, write_snapshot
from broker.quorum.opening import BOOTSTRAP_FILE, BOOTSTRAP_KEY
from broker.quorum.raft_log import METADATA_TOPIC, PARTITION, OffsetAndEpoch
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from broker.server.formatting import FormatError, format_directories, new_id
from config.endpoints import PORT_MAX
from config.server import ServerConfig
from protocol.messages.stored.control_records import KRaftVersionRecord
from protocol.messages.stored.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from protocol.records import ControlRecordType
from protocol.uuids import uuid_from_text
from storage.disk import SYSTEM_DISK, Disk
from storage.files import make_directory, partition_directory_name, replace_file

VOTERS_KEY = "controller.quorum.voters"
BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
DYNAMIC_FLAGS = "--standalone, --initial-controllers, or --no-initial-controllers"
LEVEL_MAX = 2**15 - 1


class FormatOptions(NamedTuple):
    """What the command line asks for. `features` are texts of the form name=level, `scram_users` the arguments of --add-scram."""

    cluster_id: str
    ignore_formatted: bool = False
    release_version: str | None = None
    features: Sequence[str] = ()
    scram_users: Sequence[str] = ()
    is_standalone: bool = False
    initial_controllers: str | None = None
    has_no_initial_controllers: bool = False

    def __repr__(self) -> str:
        return f"FormatOptions({self.cluster_id})"  # the users have passwords: they may be in no log and no traceback


def format_node(
    config: ServerConfig,
    options: FormatOptions,
    *,
    random_bytes: Callable[[int], bytes],
    now_ms: int,
    say: Callable[[str], None],
    disk: Disk = SYSTEM_DISK,
) -> None:
    """Format the log directories of `config` that are not formatted, and `say` what Kafka's tool prints. Raises FormatError before
    anything is written, StorageError."""
    asked = dict(_parse_feature(text) for text in options.features)
    release = _find_metadata_version(options.release_version, asked)
    voters = _find_voters(config, options, random_bytes)
    levels = _find_levels(asked, release, is_dynamic=_is_reachable(config) and not config.controller_quorum_voters)
    records: list[FeatureLevelRecord | UserScramCredentialRecord] = [
        *bootstrap_records(levels),
        *_scram_records(options.scram_users, release, random_bytes),
    ]
    described: list[Path] = []

    def prepare(directory: Path) -> bytes | None:
        if not described:
            say(f"Bootstrap metadata: {_bootstrap_text(records, release)}")
        described.append(directory)
        is_for_metadata = directory == Path(config.metadata_log_dir)
        say(f"Formatting {_kind_of(is_for_metadata, voters, config.node_id)} {directory} with {METADATA_VERSION_FEATURE} {release.name}.")
        content = b"".join(snapshot_batches(records, epoch=0, last_timestamp=0, now_ms=now_ms))
        replace_file(directory / BOOTSTRAP_FILE, content, disk=disk)
        if not is_for_metadata or voters is None:
            return None
        _write_voters(directory, voters, levels[KRAFT_VERSION_FEATURE], now_ms, disk)
        me = voters.find(config.node_id)
        return None if me is None else me.key.directory_id

    formatted = format_directories(
        config, options.cluster_id, ignore_formatted=options.ignore_formatted, random_bytes=random_bytes, disk=disk, prepare=prepare
    )
    if not formatted:
        say("All of the log directories are already formatted.")


def bootstrap_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """The first records of a cluster with these features. kraft.version is told by the quorum's own records."""
    names = sorted(name for name, level in levels.items() if level and name not in (METADATA_VERSION_FEATURE, KRAFT_VERSION_FEATURE))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in (METADATA_VERSION_FEATURE, *names)]


def parse_voters(text: str, listener_name: str) -> VoterSet:
    """`1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@…` as voters. Raises FormatError."""
    voters: dict[int, Voter] = {}
    for part in filter(None, text.strip().split(",")):
        voter = _parse_voter(part.strip(), listener_name)
        if voter.key.node_id in voters:
            raise FormatError(f"Node id {voter.key.node_id} was specified more than once.")
        voters[voter.key.node_id] = voter
    if not voters:
        raise FormatError("No voters given.")
    return VoterSet(voters.values())


# -- features ------------------------------------------------------------------------------------------------------


def _parse_feature(text: str) -> tuple[str, int]:
    name, separator, level = (part.strip() for part in text.partition("="))
    if not separator:
        raise FormatError(f"Can't parse feature=level string {text}: equals sign not found.")
    if not level.removeprefix("-").isdecimal() or not level.isascii() or abs(int(level)) > LEVEL_MAX:
        raise FormatError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name, int(level)


def _find_metadata_version(release: str | None, asked: Mapping[str, int]) -> MetadataVersion:
    if release is not None:
        found = find_release(release)
        if found is None:
            names = ", ".join(version.name for version in METADATA_VERSIONS.values())
            raise FormatError(f"Unknown {METADATA_VERSION_FEATURE} '{release}'. Supported {METADATA_VERSION_FEATURE} are: {names}")
        if METADATA_VERSION_FEATURE in asked:
            why = f"Use --release-version instead of --feature {METADATA_VERSION_FEATURE}=X to avoid ambiguity."
            raise FormatError(why)
        return found
    level = asked.get(METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL)
    if level not in METADATA_VERSIONS:
        valid = f"Valid feature levels are from {METADATA_VERSION_MIN} to {METADATA_VERSION_MAX}."
        raise FormatError(f"No MetadataVersion with feature level {level}. {valid}")
    return METADATA_VERSIONS[level]


def _find_levels(asked: Mapping[str, int], release: MetadataVersion, *, is_dynamic: bool) -> dict[str, int]:
    """The level of every feature of the new cluster (Formatter.calculateEffectiveFeatureLevels)."""
    for name in asked:
        if name not in FEATURES and name != METADATA_VERSION_FEATURE:
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}")
    levels = {METADATA_VERSION_FEATURE: release.level}
    for feature in FEATURES.values():
        levels[feature.name] = asked.get(feature.name, default_level(feature, release.level))
    levels[KRAFT_VERSION_FEATURE] = _find_kraft_version(asked.get(KRAFT_VERSION_FEATURE), is_dynamic=is_dynamic)
    for name, feature in FEATURES.items():
        level = levels[name]
        if not 0 <= level <= feature.highest:
            raise FormatError(f"No feature:{name} with feature level {level}")
        if level > SUPPORTED.get(name, NOT_SUPPORTED)[1]:
            raise FormatError(f"{name} {level} is not supported by Barnabas yet.")
        dependency = find_dependency(name, level, levels)
        if dependency is not None:
            raise FormatError(dependency)
    return levels


def _find_kraft_version(asked: int | None, *, is_dynamic: bool) -> int:
    if asked is None:
        return KRAFT_VERSION_MAX if is_dynamic else 0
    if asked == 0 and is_dynamic:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION_FEATURE} to 0 if {VOTERS_KEY} is empty and one of the flags {DYNAMIC_FLAGS} is used. For dynamic "
            f"controllers support, try removing the --feature flag for {KRAFT_VERSION_FEATURE}."
        )
    if asked != 0 and not is_dynamic:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION_FEATURE} to {asked} unless {VOTERS_KEY} is empty and one of the flags {DYNAMIC_FLAGS} is used. For "
            f"dynamic controllers support, try using one of {DYNAMIC_FLAGS} and removing {VOTERS_KEY}."
        )
    return asked


def _scram_records(
    arguments: Sequence[str], release: MetadataVersion, random_bytes: Callable[[int], bytes]
) -> list[UserScramCredentialRecord]:
    if not arguments:
        return []
    from broker.security.credentials.scram_store import scram_record
    from broker.security.sasl.scram_arguments import ScramArgumentError, parse

    if release.level < METADATA_VERSION_SCRAM:
        oldest = METADATA_VERSIONS[METADATA_VERSION_SCRAM].name
        raise FormatError(f"SCRAM is only supported in {METADATA_VERSION_FEATURE} {oldest} or later.")
    try:
        return [scram_record(*parse(argument, random_bytes)) for argument in arguments]
    except ScramArgumentError as error:
        raise FormatError(str(error)) from error


# -- voters --------------------------------------------------------------------------------------------------------


def _is_reachable(config: ServerConfig) -> bool:
    """Whether there can be other nodes in the quorum."""
    return bool(config.controller_listener_names)


def _find_voters(config: ServerConfig, options: FormatOptions, random_bytes: Callable[[int], bytes]) -> VoterSet | None:
    """The first voters; None where the configuration names them, or where they come from the quorum's leader."""
    if config.controller_quorum_voters and (options.initial_controllers is not None or options.is_standalone):
        raise FormatError(
            f"You cannot specify {VOTERS_KEY} and format the node with --initial-controllers or --standalone. If you want to use dynamic "
            f"quorum, please remove {VOTERS_KEY} and specify {BOOTSTRAP_KEY} instead."
        )
    if not _is_reachable(config):
        if options.initial_controllers is not None:
            raise FormatError("You must specify the name of the initial controller listener.")
        return None
    if options.initial_controllers is not None:
        return parse_voters(options.initial_controllers, config.controller_listener_names[0])
    is_controller = "controller" in config.process_roles
    if options.is_standalone:
        if not is_controller:
            raise FormatError("You can only use --standalone on a controller.")
        return VoterSet([_standalone_voter(config, new_id(random_bytes))])
    if is_controller and not options.has_no_initial_controllers and not config.controller_quorum_voters:
        raise FormatError(f"Because {VOTERS_KEY} is not set on this controller, you must specify one of the following: {DYNAMIC_FLAGS}.")
    return None


def _standalone_voter(config: ServerConfig, directory_id: bytes) -> Voter:
    name = config.controller_listener_names[0]
    found = {endpoint.listener_name: endpoint for endpoint in (*config.listeners, *config.advertised_listeners)}
    if name not in found:
        raise FormatError("No controller listeners found.")
    address = (found[name].host or "localhost", found[name].port)
    return Voter(ReplicaKey(config.node_id, directory_id), {name: address}, (0, KRAFT_VERSION_MAX))


def _parse_voter(text: str, listener_name: str) -> Voter:
    node_id, at, rest = text.partition("@")
    if not at:
        raise FormatError("No @ found in dynamic voter string.")
    if not node_id:
        raise FormatError("Invalid @ at beginning of dynamic voter string.")
    if not node_id.removeprefix("-").isdecimal() or not node_id.isascii():
        raise FormatError("Failed to parse node id in dynamic voter string.")
    if int(node_id) < 0:
        raise FormatError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise FormatError("No hostname found after node id.")
    host, port, directory_id = _parse_place(rest)
    return Voter(ReplicaKey(int(node_id), directory_id), {listener_name: (host, port)}, (0, KRAFT_VERSION_MAX))


def _parse_place(text: str) -> tuple[str, int, bytes]:
    """Host, port and directory id."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise FormatError("Hostname began with left bracket, but no right bracket was found.")
    else:
        host, colon, rest = text.partition(":")
        if not colon:
            raise FormatError("No colon following hostname could be found.")
        rest = colon + rest
    if not rest.startswith(":"):
        raise FormatError("Port section must start with a colon.")
    port, colon, directory_id = rest[1:].partition(":")
    if not colon:
        raise FormatError("No colon following port could be found.")
    if not port.removeprefix("-").isdecimal() or not port.isascii():
        raise FormatError("Failed to parse port in dynamic voter string.")
    if not 0 <= int(port) <= PORT_MAX:
        raise FormatError(f"Invalid port {port} in dynamic voter string.")
    try:
        return host, int(port), uuid_from_text(directory_id)
    except ValueError as error:
        raise FormatError("Failed to parse directory ID in dynamic voter string.") from error


# -- what is written and said --------------------------------------------------------------------------------------


def _write_voters(directory: Path, voters: VoterSet, kraft_version: int, now_ms: int, disk: Disk) -> None:
    """The first snapshot of the metadata log: the quorum's own records and nothing else."""
    log_directory = directory / partition_directory_name(METADATA_TOPIC, PARTITION)
    make_directory(log_directory, disk)
    quorum_records = [
        (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=kraft_version)),
        (ControlRecordType.KRAFT_VOTERS, voters.to_record()),
    ]
    content = b"".join(snapshot_batches((), epoch=0, last_timestamp=now_ms, now_ms=now_ms, quorum_records=quorum_records))
    write_snapshot(log_directory, content, *BOOTSTRAP_SNAPSHOT, disk)


def _kind_of(is_for_metadata: bool, voters: VoterSet | None, node_id: int) -> str:
    if not is_for_metadata:
        return "data directory"
    if voters is None:
        return "metadata directory"
    return "dynamic metadata voter directory" if voters.find(node_id) is not None else "dynamic metadata directory"


def _bootstrap_text(records: Sequence[FeatureLevelRecord | UserScramCredentialRecord], release: MetadataVersion) -> str:
    texts = (f"ApiMessageAndVersion({_record_text(record)} at version 0)" for record in records)
    return f"BootstrapMetadata(records=[{', '.join(texts)}], metadataVersionLevel={release.level}, source=format command)"


def _record_text(record: FeatureLevelRecord | UserScramCredentialRecord) -> str:
    if isinstance(record, FeatureLevelRecord):
        return f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
    hidden = "salt=[hidden], storedKey=[hidden], serverKey=[hidden]"
    return f"UserScramCredentialRecord(name='{record.name}', mechanism={record.mechanism}, {hidden}, iterations={record.iterations})"
