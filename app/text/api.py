"""What programs read of the endpoints: labels of their parameters, what each returns, and refusals."""

from __future__ import annotations

# ---- parameters and results

IMAGES = "Pictures"
CLASSES = "Class names"
ZIP = "A zip with one folder of pictures per class"
SAMPLES = "Pictures to try it on"
UNLABELLED_IMAGES = "Photos without labels"
FORGET_TARGET = "A zip of what to forget, one folder of pictures per class"
FORGET_CONTROL = "A zip of what to keep, one folder of pictures per class"
FORGET_KEEP = "Share of what is right among the classes to keep that must stay, 0 to 1"
TASKS = "Strength of donors, as {name: factor}"
LAYERS = "Strength of layers, as {number: factor}"
MODEL_NAME = "Model name"
ROWS = "Answers"
RESULT = "Result"
RECIPE = "A recipe file"
WEIGHTS = "Weights"
TEMPLATES = "Sentences for the class names: a set's name, or a line each with {}; empty for the model's own"
STOPPED = "Whether there was a run"
MODEL = "Model"

# ---- endpoints

PREDICT_ENDPOINT = (
    "Rank class names for each picture. `classes` is one text, separated by commas or line ends. Returns "
    '{"rows": [{"image", "label", "prob", "top": [{"label", "prob"}]}], "left_out": [sentence]}.'
)
ADAPT_ENDPOINT = (
    "Adapt to the classes of a zip. Streams {phase, share, seconds_left}, then returns the result and the "
    "recipe's file. The result is "
    '{"verdict", "helped", "kept", "estimates": [{"method", "accuracy", "low", "high", "images"}], '
    '"seconds", "stopped", '
    '"rows": [{"image", "truth", "zero_shot": {"label", "prob"}, "adapted": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
ADAPT_UNLABELLED_ENDPOINT = (
    "Adapt to photos without labels that may show any of `classes`, one text, separated by commas or line "
    "ends. Streams and returns as `/adapt` does, without estimates: the verdict tells whether zero-shot was "
    "kept, and why."
)
STOP_ENDPOINT = (
    "End the run that this client has under way, which then returns the best so far. "
    'Returns {"stopped"}: whether there was one.'
)
COMPARE_ENDPOINT = (
    "Pictures by zero-shot and by a recipe. Returns "
    '{"rows": [{"image", "truth", "zero_shot": {"label", "prob"}, "adapted": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
FORGET_ENDPOINT = (
    "Forget the classes of one zip and keep those of another. Streams {phase, share, seconds_left}, then "
    'returns the result and the recipe\'s file. The result is {"verdict", "helped", "kept", '
    '"strengths": [{"strength", "target", "control"}], "seconds", "stopped", "left_out": [sentence]}: the '
    "shares of pictures named right at each strength, on all pictures given."
)
INSIDE_ENDPOINT = (
    "What a recipe is made of. Returns "
    '{"donors": [{"name", "share", "trained_on", "before", "after"}], "layers": [number], '
    '"map": {"rows": [donor], "columns": [layer], "values": [[number]]}}, the donors that move it most first.'
)
TURN_ENDPOINT = (
    "Pictures by a recipe as it is, and with donors or layers turned down or up: 0 takes one out, 1 is as "
    'learned. Returns {"rows": [{"image", "as_learned": {"label", "prob"}, "now": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
WEIGHTS_ENDPOINT = (
    "The adapted image tower of a recipe. Returns a safetensors file under open_clip's names. The head, "
    "which gives the answers, is not in it: it stays in the recipe. Refuses a recipe that moves no block."
)
BANK_ENDPOINT = (
    "The bank of task vectors that the present model draws on. Returns "
    '{"donors": [{"name", "trained_on", "before", "after"}], '
    '"alike": {"rows": [donor], "columns": [donor], "values": [[cosine]]}}.'
)
CHOOSE_ENDPOINT = (
    "Choose the model that answers this client from now on: `bundled`, or ARCH/PRETRAINED as open_clip "
    "spells it. Fetches it and builds its bank where needed. Returns "
    '{"model", "image_weights", "pixels", "donors": [name]}.'
)
MODELS_ENDPOINT = (
    'The model that answers this client now, and those on offer. Returns {"now", "offered": [name]}.'
)

# ---- refusals

SHARED_SESSION = (
    "Callers over MCP share one session: for them the model is chosen with ATLAS_MODEL, at the start."
)
MCP_MISSING = (
    "ATLAS_MCP is set, but the package `mcp` is not installed: the page is served without its MCP server. "
    'Install it with: pip install "mcp>=1.21,<2"'
)


def unknown_task(name: str, known: tuple[str, ...]) -> str:
    """The refusal of a task vector that the recipe does not draw on."""
    return f"'{name[:60]}' is no donor of this recipe. It has: {', '.join(known)}."


def bad_strengths(given: object) -> str:
    """The refusal of strengths that are no numbers in range."""
    return f'{str(given)[:60]} is no strength. Give numbers from 0 to 2 by name, as {{"mnist": 0}}.'
