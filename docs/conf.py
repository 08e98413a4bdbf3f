"""The site of the documentation: `make docs` writes it to build/docs, without network and with warnings as errors.

Pages are the Markdown files as they lie in the repository, so that links between them work on a forge and here. A link to a file that is
no page becomes a download of that file, and one to a folder becomes plain words, because the repository's address is not known.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref

_ROOT = Path(__file__).parents[1]

project = "Barnabas"
release = re.findall(r'VERSION = "([^"]+)"', (_ROOT / "broker/server/version.py").read_text(encoding="utf-8"))[0]
version = release
html_title = f"Barnabas {release}"

# The source folder is the repository, for README.md and its like are pages too.
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/reference/*.md"]
exclude_patterns = [".venv", ".git", "build", "data"]
root_doc = "docs/index"
html_additional_pages = {"index": "to_index.html"}
templates_path = ["site"]

extensions = ["myst_parser"]
myst_heading_anchors = 4  # the same anchors as a forge gives to headings
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False


def setup(app: Any) -> None:
    """Drawings in mermaid's words stay words: what draws them is a script from the network."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("doctree-read", _unlink_folders)


def _unlink_folders(app: Any, doctree: nodes.document) -> None:
    folder = Path(doctree["source"]).parent
    for link in list(doctree.findall(pending_xref)):
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)
