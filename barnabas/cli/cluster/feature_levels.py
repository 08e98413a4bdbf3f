"""Features and their levels (KIP-584, KIP-1022), as the brokers tell them, and how they are changed."""

from __future__ import annotations

import argparse
from typing import Any

from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, check, in_words
from barnabas.cli.output import Output, confirm
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import Settings
from barnabas.cli.topic.configs import parse_configs
from broker.metadata.feature_levels import FEATURES, METADATA_VERSIONS, find_release
from broker.metadata.features import METADATA_VERSION_FEATURE
from broker.server.version import VERSION
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SOFTWARE = "barnabas"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""FeatureUpdate.UpgradeType's codes."""
KRAFT_VERSION = "kraft.version"


def feature_facts(connection: Connection, broker_id: int | None = None) -> list[dict[str, Any]]:
    """Raises CommandError."""
    answer = connection.wire(broker_id).request(ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=VERSION))
    check(answer.error_code)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return [
        {
            "feature": each.name,
            "level": levels.get(each.name, 0),
            "release": _release(each.name, levels.get(each.name, 0)),
            "min_level": each.min_version,
            "max_level": each.max_version,
            "max_release": _release(each.name, each.max_version),
        }
        for each in sorted(answer.supported_features, key=lambda each: str(each.name))
    ]


def add_levels(parser: argparse.ArgumentParser) -> None:
    """As in kafka-features."""
    add = parser.add_argument
    add("-r", "--release-version", "--release", metavar="RELEASE", help="all features as a new cluster of this release has them: 4.0")
    add("--metadata", metavar="RELEASE", help="metadata.version alone: 4.0-IV3")
    add("-f", "--feature", action="append", default=[], metavar="NAME=LEVEL")


def change(settings: Settings, options: argparse.Namespace, kind: int) -> int:
    """Returns the exit code. Raises CommandError."""
    with Connection(settings) as connection:
        known = {each["feature"]: each for each in feature_facts(connection)}
        wanted = _wanted(options, known, is_upgrade=kind == UPGRADE)
        plan = [f"{name}: from {known[name]['level'] if name in known else 0} to {level}" for name, level in wanted.items()]
        if kind == UNSAFE_DOWNGRADE:
            plan.append("metadata that the lower level does not know is lost")
        updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in wanted.items()]
        # The controller is asked before a person is: what it refuses needs no answer.
        tried = connection.wire().request(
            UpdateFeaturesRequest(timeout_ms=connection.timeout_ms, feature_updates=updates, validate_only=True)
        )
        check(tried.error_code, tried.error_message)
        refused = [each for each in tried.results if each.error_code != ErrorCode.NONE]
        if not refused:
            if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
                return DONE
            answer = connection.wire().request(UpdateFeaturesRequest(timeout_ms=connection.timeout_ms, feature_updates=updates))
            check(answer.error_code, answer.error_message)
            refused = [each for each in answer.results if each.error_code != ErrorCode.NONE]
    why = {each.feature: in_words(each.error_code, each.error_message) for each in refused}
    outcomes = [Outcome(name, why.get(name, f"level {level}"), is_done=name not in why) for name, level in wanted.items()]
    report(Output(options.output), "feature", outcomes)
    return DONE


def _wanted(options: argparse.Namespace, known: dict[str, dict[str, Any]], *, is_upgrade: bool) -> dict[str, int]:
    """The level by feature. Raises NotUnderstoodError."""
    if options.release_version and (options.metadata or options.feature):
        raise NotUnderstoodError("--release-version says all: it goes without --metadata and --feature")
    if options.release_version:
        level = _metadata_level(options.release_version)
        wanted = {METADATA_VERSION_FEATURE: level}
        for name, feature in FEATURES.items():
            default = sum(level >= since for since in feature.default_since)
            # As kafka-features: nothing is raised to level 0. A cluster whose brokers do not know a feature is not asked for it.
            if name in known and name != KRAFT_VERSION and (default or not is_upgrade):
                wanted[name] = min(default, known[name]["max_level"])
        return wanted
    wanted = {METADATA_VERSION_FEATURE: _metadata_level(options.metadata)} if options.metadata else {}
    for name, text in parse_configs(options.feature).items():
        if not text.isdigit():
            raise NotUnderstoodError(f"--feature {name}={text}: a level is a number")
        wanted[name] = int(text)
    if not wanted:
        raise NotUnderstoodError("say which: --release-version, --metadata or --feature NAME=LEVEL")
    return wanted


def _metadata_level(text: str) -> int:
    version = find_release(text)
    if version is None:
        names = [each.name for each in METADATA_VERSIONS.values()]
        raise NotUnderstoodError(f"{text!r} is no release that is known here: {names[0]} to {names[-1]}, or 4.0")
    return version.level


def _release(name: str, level: int) -> str | None:
    if name != METADATA_VERSION_FEATURE or level not in METADATA_VERSIONS:
        return None
    return METADATA_VERSIONS[level].name
