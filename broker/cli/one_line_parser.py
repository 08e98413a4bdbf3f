"""An argparse parser whose errors are one line, without the usage that argparse prints too: --help has it."""

from __future__ import annotations

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Exit code 2 for a command line that cannot be understood."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")
