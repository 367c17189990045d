"""How alike the vectors of a bank are, as a grid to draw. Pure; knows nothing of how a grid is drawn.

grid = similarity_grid(similarities(bank))       # donors × donors, neighbours beside each other
heat_map(grid), as_text(grid)                    # see `figures`
"""

from __future__ import annotations

from atlas_engine.compose.similarity import Similarities, similarities
from atlas_engine.views.figures import Grid

__all__ = ["similarities", "similarity_grid"]


def similarity_grid(alike: Similarities) -> Grid:
    """The cosine of every two vectors; none with itself, a 1 that would take the colour from the rest."""
    ordered = alike.in_order()
    values = tuple(
        tuple(None if row == column else value for column, value in enumerate(cosines))
        for row, cosines in enumerate(ordered.values.tolist())
    )
    return Grid(
        "How alike the donors are",
        ordered.tasks,
        ordered.tasks,
        values,
        number="+.2f",
        about="Cosine of every two task vectors: 1 is the same direction, 0 nothing in common.",
    )
