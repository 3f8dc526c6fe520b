"""The pages of the documentation, and what stands in them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "FINDINGS.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / name for name in ("benchmarks/README.md", "results/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
OURS = [page for page in PAGES if page.parent.name != "benchmarks"]


def blocks(text, language):
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def without_code(text):
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
