"""argparse whose errors are one line: the usage, which argparse prints as well, is what --help is for."""

from __future__ import annotations

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Exit code 2 for a command line that cannot be understood."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")
