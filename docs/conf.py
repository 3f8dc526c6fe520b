"""The site of the documentation: Sphinx with Markdown pages (MyST), offline, every dead link an error (`make docs`)."""

import re
from typing import Any

import fedeba_jax  # noqa: F401  (autodoc needs it; better to fail here than on every page)

project = "fedeba_jax"
copyright = "the fedeba_jax developers, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "fedeba_jax"
html_copy_source = False
exclude_patterns: list[str] = []

myst_heading_anchors = 4  # links to headings are checked
myst_links_external_new_tab = False
suppress_warnings: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the hyper-parameters' types are in methods.md; other signatures are short without
autodoc_default_options = {"members": True}
nitpick_ignore_regex = [("py:.*", r"(jax|optax|numpy|collections|typing|abc|enum)\b.*")]
python_display_short_literal_types = True

napoleon_use_rtype = False  # what follows "Returns:" is no type

SECTIONS = ("Args:", "Returns:", "Raises:", "Attributes:", "Notes:")


def as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings as reStructuredText: names in backticks are code, and no sign of an equation is markup."""
    made: list[str] = []
    listed = False  # inside lines that are set in from their paragraph, as the entries of a list are
    for number, line in enumerate(lines):
        text = line.replace("\\", "\\\\")
        text = "".join(
            f"``{part}``" if odd else re.sub(r"([|*])", r"\\\1", part)
            for odd, part in ((i % 2, part) for i, part in enumerate(text.split("`")))
        )
        text = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text)
        before = lines[number - 1] if number else ""
        deeper = _indent(line) > _indent(before) and before.strip() and before.strip() not in SECTIONS
        if deeper and _indent(before) == 0:
            made.append("")
            listed = True
        listed = listed and bool(line.strip()) and _indent(line) > 0
        made.append(" " * _indent(line) + "| " + text.strip() if listed and _indent(line) == 2 else text)
    lines[:] = [
        f"{line}:" if line.endswith(":") and line.strip() not in SECTIONS and _code_follows(made, i) else line
        for i, line in enumerate(made)
    ]

    plain[name] = list(lines)


plain: dict[str, list[str]] = {}


def without_types(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Undo napoleon where it takes the words before a colon, in the docstring of a constant, for its type."""
    if what in ("attribute", "data", "property"):
        lines[:] = plain[name]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _code_follows(lines: list[str], i: int) -> bool:
    return len(lines) > i + 2 and not lines[i + 1].strip() and _indent(lines[i + 2]) >= _indent(lines[i]) + 4


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Fields of named tuples: their docstring, "Alias for field number 0", says nothing."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_rst, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", without_types, priority=600)  # after it
    app.connect("autodoc-skip-member", skip)
