"""The table of our own properties in docs/operations.md. `python -m config.documentation` prints its rows."""

from __future__ import annotations

import sys

from config.docs import documentation
from config.properties import UpdateMode
from config.server import SERVER_PROPERTIES
from config.topic import TOPIC_PROPERTIES

_CHANGES = {UpdateMode.READ_ONLY: "fixed", UpdateMode.PER_BROKER: "of this broker", UpdateMode.CLUSTER_WIDE: "of all brokers"}


def own_properties_table() -> str:
    """One row for each `barnabas.…` property, as Markdown, each with its line's end."""
    rows = []
    for name, known in SERVER_PROPERTIES.items():
        if name.startswith("barnabas."):
            changes = _CHANGES[known.update_mode] + (", of a topic" if name in TOPIC_PROPERTIES else "")
            allowed = known.range.replace("|", " or ")
            default = known.default_text or '""'
            rows.append(f"| `{name}` | {known.type.name.lower()} | {default} | {allowed} | {changes} | {documentation(name)} |\n")
    return "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(own_properties_table())
