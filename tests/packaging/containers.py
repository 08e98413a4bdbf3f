"""What the container files say: the image's variables and commands, and the nodes of docker-compose.yml."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from config.loading import DEFAULTS_VARIABLE, load_server_config
from config.server import ServerConfig

ROOT = Path(__file__).parents[2]
IMAGE_DEFAULTS = ROOT / "config" / "container.properties"


def dockerfile_environment() -> dict[str, str]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    pairs = [pair for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for pair in line.split()]
    return dict(pair.split("=", 1) for pair in pairs)


def dockerfile_command(instruction: str) -> list[str]:
    """The words of ENTRYPOINT, CMD or of HEALTHCHECK's command."""
    text = (ROOT / "Dockerfile").read_text()
    words: list[str] = json.loads(re.findall(rf"^{instruction}\b.*?(\[.*\])$", text, re.MULTILINE)[0])
    return words


def in_image(**given: str) -> dict[str, str]:
    """The variables of a container that is started with those that are given."""
    return {**dockerfile_environment(), DEFAULTS_VARIABLE: str(IMAGE_DEFAULTS), **given}


def image_config(**given: str) -> ServerConfig:
    return load_server_config(None, in_image(**given), [])


def compose_nodes() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in compose_services().items() if name.startswith("barnabas-")}


def compose_services() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return services
