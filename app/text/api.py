"""What programs read of the endpoints: labels of their parameters, what each returns, and refusals."""

from __future__ import annotations

# ---- parameters and results

IMAGES = "Images"
CLASSES = "Class names"
IMAGE, LABEL = "An image", "The class of the image"
ZIP = "A zip with one folder of images per class"
SAMPLES = "Images to try it on"
UNLABELLED_IMAGES = "Images without labels"
FORGET_TARGET = "A zip of what to forget, one folder of images per class"
FORGET_CONTROL = "A zip of what to keep, one folder of images per class"
FORGET_KEEP = "Share of what is right among the classes to keep that must stay, 0 to 1"
TASKS = "Strength of task vectors, as {name: factor}"
LAYERS = "Strength of layers, as {number: factor}"
MODEL_NAME = "Model name"
ROWS = "Answers"
RESULT = "Result"
RECIPE = "A recipe file"
WEIGHTS = "Weights"
EXPORT_FORMAT = "onnx, html, openclip or transformers"
EXPORT_INT8 = "Weights in eight bits"
TEMPLATES = "Sentences for the class names: a set's name, or a line each with {}; empty for the model's own"
STOPPED = "Whether there was a run"
MODEL = "Model"

# ---- endpoints

PREDICT_ENDPOINT = (
    "Rank class names for each image. `classes` is one text, separated by commas or line ends. Returns "
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
    "Adapt to images without labels that may show any of `classes`, one text, separated by commas or line "
    "ends. Streams and returns as `/adapt` does, without estimates: the verdict tells whether zero-shot was "
    "kept, and why."
)
STOP_ENDPOINT = (
    "End the run that this client has under way, which then returns the best so far. "
    'Returns {"stopped"}: whether there was one.'
)
COMPARE_ENDPOINT = (
    "Images by zero-shot and by a recipe. Returns "
    '{"rows": [{"image", "truth", "zero_shot": {"label", "prob"}, "adapted": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
FORGET_ENDPOINT = (
    "Forget the classes of one zip and keep those of another. Streams {phase, share, seconds_left}, then "
    'returns the result and the recipe\'s file. The result is {"verdict", "helped", "kept", '
    '"strengths": [{"strength", "target", "control"}], "seconds", "stopped", "left_out": [sentence]}: the '
    "shares of images named right at each strength, on all images given."
)
INSIDE_ENDPOINT = (
    "What a recipe is made of. Returns "
    '{"task_vectors": [{"name", "share", "trained_on", "before", "after"}], "layers": [number], '
    '"map": {"rows": [name], "columns": [layer], "values": [[number]]}}, the vectors that move it most first.'
)
TURN_ENDPOINT = (
    "Images by a recipe as it is, and with task vectors or layers turned down or up: 0 takes one out, 1 is "
    'as learned. Returns {"rows": [{"image", "as_learned": {"label", "prob"}, "now": {"label", "prob"}}], '
    '"left_out": [sentence]}.'
)
WEIGHTS_ENDPOINT = (
    "The adapted image tower of a recipe. Returns a safetensors file under open_clip's names. The head, "
    "which gives the answers, is not in it: it stays in the recipe. Refuses a recipe that moves no block."
)
EXPORT_ENDPOINT = (
    "The model of a recipe for other programs, as `onnx`, `html`, `openclip` or `transformers`; `int8` "
    "stores weights in eight bits (onnx and html). Returns one file: the ONNX file, the page, or a zip."
)
BANK_ENDPOINT = (
    "The bank of task vectors that the present model draws on. Returns "
    '{"task_vectors": [{"name", "trained_on", "before", "after"}], '
    '"similarities": {"rows": [name], "columns": [name], "values": [[cosine]]}}.'
)
CHOOSE_ENDPOINT = (
    "Choose the model that answers this client from now on: `bundled`, or ARCH/PRETRAINED as open_clip "
    "spells it. Fetches it and builds its bank where needed. Returns "
    '{"model", "image_weights", "pixels", "task_vectors": [name]}.'
)
MODELS_ENDPOINT = (
    'The model that answers this client now, and those on offer. Returns {"now", "offered": [name]}.'
)

TRY_ENDPOINT = (
    "Answer images at once, by a recipe or, without one, by `classes` alone; it never waits for a run. "
    "Returns "
    '{"rows": [{"image", "truth", "zero_shot": {"label", "prob"}, "adapted": {"label", "prob"} or null}], '
    '"left_out": [sentence]}.'
)
CORRECT_ENDPOINT = (
    "Put an image that was answered wrongly into its class, in a zip to learn from; an image stands in one "
    "class "
    'only, and a new class gets a folder. Returns the new zip, ready for `/adapt`, and {"counts": {class: '
    "images}}."
)
SHARE_ENDPOINT = (
    "Keep a recipe on this server for some days, for whoever has its link. It holds class names and what "
    'was learned, never images. Returns {"link", "days", "classes"}; the link is a query to put behind the '
    "page's address."
)

# ---- what each parameter is, for agents

_MODEL_SENTENCES = (
    "How class names are put into sentences: a set's name, or a line each with {}; empty for the usual."
)
_RECIPE_FILE = "A recipe (.atlas.safetensors), as `/adapt` returns it, made with the present model."
_SEED = "A whole number; the same seed gives the same result."
PARAMETERS: dict[str, dict[str, str]] = {
    "predict": {
        "images": "The images to answer: JPEG, PNG or WEBP files.",
        "classes": "Two or more class names in one text, separated by commas or line ends.",
    },
    "adapt": {
        "archive": "A zip to learn from: one folder of images per class, two classes or more.",
        "samples": "Images to try the result on; may be empty.",
        "method": "How to learn; auto checks itself and keeps the model as it was where nothing beats it.",
        "steps": "Optimiser steps, 1 to 200; more takes longer.",
        "seed": _SEED,
        "lr": "Learning rate of the first step, above 0.",
        "templates": _MODEL_SENTENCES,
    },
    "adapt_unlabelled": {
        "photos": "Images without labels, forty or more at best.",
        "classes": "What the images may show: two or more names, separated by commas or line ends.",
        "objective": "How to adapt; auto does what is safe and undoes what its checks speak against.",
        "seed": _SEED,
        "templates": _MODEL_SENTENCES,
    },
    "stop": {},
    "compare": {"samples": "Images to answer by zero-shot and by the recipe.", "recipe": _RECIPE_FILE},
    "forget": {
        "target": "A zip of what to forget: one folder of images per class.",
        "control": "A zip of what to keep: one folder of images per class.",
        "keep": "Share of what is right among the classes to keep that must stay, 0 to 1.",
        "seed": _SEED,
    },
    "inside": {"recipe": _RECIPE_FILE},
    "turn": {
        "samples": "Images to answer as learned and with the strengths given.",
        "recipe": _RECIPE_FILE,
        "tasks": 'Strengths of task vectors by name, 0 to 2, as {"mnist": 0}; 1 is as learned.',
        "layers": 'Strengths of layers by number, 0 to 2, as {"3": 0.5}.',
    },
    "weights": {"recipe": _RECIPE_FILE},
    "export": {
        "recipe": _RECIPE_FILE,
        "format": "onnx, html, openclip or transformers.",
        "int8": "Whether weights are stored in eight bits, for onnx and html.",
    },
    "bank": {},
    "models": {},
    "choose": {"model": "`bundled`, or a model as open_clip spells it: ARCH/PRETRAINED."},
    "try": {
        "images": "The images to answer: JPEG, PNG or WEBP files.",
        "recipe": f"{_RECIPE_FILE} Without it, the class names decide.",
        "classes": "Class names to choose from where there is no recipe, separated by commas or line ends.",
    },
    "correct": {
        "archive": "The zip that was learned from: one folder of images per class.",
        "image": "The image that was answered wrongly.",
        "label": "The class that it is of.",
    },
    "share": {"recipe": _RECIPE_FILE},
}
"""Of every endpoint, what each of its parameters is."""

# ---- refusals

NO_LABEL = "There is no class for the image. Give its name as `label`."

SHARED_SESSION = (
    "Callers over MCP share one session: for them the model is chosen with ATLAS_MODEL, at the start."
)
MCP_MISSING = (
    "ATLAS_MCP is set, but the package `mcp` is not installed: the page is served without its MCP server. "
    'Install it with: pip install "mcp>=1.21,<2"'
)


def unknown_task(name: str, known: tuple[str, ...]) -> str:
    """The refusal of a task vector that the recipe does not draw on."""
    return f"'{name[:60]}' is no task vector of this recipe. It has: {', '.join(known)}."


def bad_strengths(given: object) -> str:
    """The refusal of strengths that are no numbers in range."""
    return f'{str(given)[:60]} is no strength. Give numbers from 0 to 2 by name, as {{"mnist": 0}}.'
