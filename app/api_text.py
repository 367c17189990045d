"""What programs read of the endpoints that look inside a recipe. Knows nothing else."""

from __future__ import annotations

TASKS = "Strength of donors, as {name: factor}"
LAYERS = "Strength of layers, as {number: factor}"
WEIGHTS = "Weights"
INSIDE = (
    "What a recipe is made of. Returns "
    '{"donors": [{"name", "share", "trained_on", "before", "after"}], "layers": [number], '
    '"map": {"rows": [donor], "columns": [layer], "values": [[number]]}}, the donors that move it most first.'
)
TURN = (
    "Pictures by a recipe as it is, and with donors or layers turned down or up: 0 takes one out, 1 is as "
    'learned. Returns {"rows": [{"image", "as_learned": {"label", "prob"}, "now": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
MAKE_WEIGHTS = "The adapted image tower of a recipe. Returns a safetensors file under open_clip's names."


def no_donor(name: str, known: tuple[str, ...]) -> str:
    """The refusal of a donor that the recipe does not draw on."""
    return f"'{name[:60]}' is no donor of this recipe. It has: {', '.join(known)}."


def no_strengths(given: object) -> str:
    """The refusal of strengths that are none."""
    return f'{str(given)[:60]} is no strength. Give numbers from 0 to 2 by name, as {{"mnist": 0}}.'
