"""Parts of pages that follow from code and from results/; `docs.generate` puts them in their places."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NOTHING = "No result is committed yet."
