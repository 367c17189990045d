"""What programs read of the endpoints; roll, model and forget texts have their own. Knows nothing else."""

from __future__ import annotations

ZIP = "A zip with one folder of pictures per class"
SAMPLES = "Pictures to try it on"
RECIPE = "A recipe file"
RESULT = "Result"
ADAPT = (
    "Adapt to the classes of a zip. Streams {phase, share, seconds_left}, then returns the result and the "
    "recipe's file. The result is "
    '{"verdict", "helped", "kept", "estimates": [{"method", "accuracy", "low", "high", "images"}], '
    '"seconds", "stopped", '
    '"rows": [{"image", "truth", "zero_shot": {"label", "prob"}, "adapted": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
STOP = (
    "End the run that this client has under way, which then returns the best so far. "
    'Returns {"stopped"}: whether there was one.'
)
STOPPED = "Whether there was a run"
COMPARE = (
    "Pictures by zero-shot and by a recipe. Returns "
    '{"rows": [{"image", "truth", "zero_shot": {"label", "prob"}, "adapted": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
IMAGES = "Pictures"
CLASSES = "Class names"
ROWS = "Answers"
PREDICT = (
    "Rank class names for each picture. `classes` is one text, separated by commas or line ends. Returns "
    '{"rows": [{"image", "label", "prob", "top": [{"label", "prob"}]}], "left_out": [sentence]}.'
)

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
MAKE_WEIGHTS = (
    "The adapted image tower of a recipe. Returns a safetensors file under open_clip's names. The head, "
    "which gives the answers, is not in it: it stays in the recipe. Refuses a recipe that moves no block."
)
BANK = (
    "The bank of task vectors that the present model draws on. Returns "
    '{"donors": [{"name", "trained_on", "before", "after"}], '
    '"alike": {"rows": [donor], "columns": [donor], "values": [[cosine]]}}.'
)


def no_donor(name: str, known: tuple[str, ...]) -> str:
    """The refusal of a donor that the recipe does not draw on."""
    return f"'{name[:60]}' is no donor of this recipe. It has: {', '.join(known)}."


def no_strengths(given: object) -> str:
    """The refusal of strengths that are none."""
    return f'{str(given)[:60]} is no strength. Give numbers from 0 to 2 by name, as {{"mnist": 0}}.'
