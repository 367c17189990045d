"""Learning: the loop, and the runs built on it. The only place in the project with an optimiser."""

from __future__ import annotations
