"""A Python in which the `studies` package does not exist, wherever it may be installed."""

from __future__ import annotations

GUARD = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "studies":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


def without_studies(folder):
    """Write the guard that Python loads as it starts; the folder for PYTHONPATH."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(GUARD, encoding="utf-8")
    return folder
