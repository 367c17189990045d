"""What the page and its replicas say to each other: one safetensors file per message, JSON in its metadata.

    body = encode({"task": "predict", "classes": ["cat", "dog"]}, images_as_tensors(images))
    facts, tensors = decode(body)                # an AtlasError where the bytes are anything else

Nothing is pickled, so that reading a message runs no code of whoever wrote it. Numbers arrive bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

import atlas_engine as atlas
from app import text
from app.replicas.frames import KEY, Facts

__all__ = [
    "Facts",
    "comparison_as_message",
    "comparison_from",
    "decode",
    "encode",
    "images_as_tensors",
    "images_from",
    "predictions_as_message",
    "predictions_from",
    "result_as_message",
    "result_from",
    "step_as_facts",
    "step_as_message",
    "step_from",
]

Tensors = Mapping[str, Tensor]

MAX_IMAGES = 1000


def encode(facts: Facts, tensors: Tensors | None = None) -> bytes:
    """The bytes of a message."""
    body: bytes = safetensors.torch.save(dict(tensors or {}), metadata={KEY: json.dumps(facts)})
    return body


def decode(body: bytes) -> tuple[Facts, dict[str, Tensor]]:
    """The facts and the tensors of a message that anybody may have sent, or an AtlasError."""
    try:
        tensors = safetensors.torch.load(body)
        nbytes = int.from_bytes(body[:8], "little")
        facts = json.loads(json.loads(body[8 : 8 + nbytes])["__metadata__"][KEY])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        raise atlas.AtlasError(text.replicas.BAD_MESSAGE) from None
    if not isinstance(facts, dict):
        raise atlas.AtlasError(text.replicas.BAD_MESSAGE)
    return facts, tensors


# ---- images


def images_as_tensors(images: Sequence[atlas.Image]) -> dict[str, Tensor]:
    """Each image's pixels (H W 3) uint8, by its place. The names are facts."""
    return {f"image.{place}": torch.from_numpy(image.pixels.copy()) for place, image in enumerate(images)}


def images_from(facts: Facts, tensors: Tensors) -> tuple[atlas.Image, ...]:
    """The images of a message, or an AtlasError."""
    names = facts.get("names")
    if not isinstance(names, list) or not 0 < len(names) <= MAX_IMAGES:
        raise atlas.AtlasError(text.replicas.BAD_MESSAGE)
    images = []
    for place, name in enumerate(names):
        pixels = tensors.get(f"image.{place}")
        if pixels is None or pixels.dtype != torch.uint8:
            raise atlas.AtlasError(text.replicas.BAD_MESSAGE)
        images.append(atlas.Image(str(name), np.ascontiguousarray(pixels.numpy())))
    return tuple(images)


# ---- answers


def predictions_as_message(predictions: atlas.Predictions) -> bytes:
    """Predictions, to be read by `predictions_from`."""
    return encode(_predictions_facts(predictions), {"probs": predictions.probs.contiguous()})


def predictions_from(body: bytes) -> atlas.Predictions:
    """The predictions of a message."""
    facts, tensors = decode(body)
    return _predictions(facts, tensors["probs"])


def comparison_as_message(comparison: atlas.Comparison) -> bytes:
    """A comparison, to be read by `comparison_from`."""
    before, after = comparison.zero_shot, comparison.adapted
    facts = {"zero_shot": _predictions_facts(before), "adapted": _predictions_facts(after)}
    return encode(facts, {"zero_shot": before.probs.contiguous(), "adapted": after.probs.contiguous()})


def comparison_from(body: bytes) -> atlas.Comparison:
    """The comparison of a message."""
    facts, tensors = decode(body)
    return atlas.Comparison(
        _predictions(facts["zero_shot"], tensors["zero_shot"]),
        _predictions(facts["adapted"], tensors["adapted"]),
    )


def _predictions_facts(predictions: atlas.Predictions) -> Facts:
    return {"names": predictions.names, "classes": predictions.classes, "rejected": predictions.rejected}


def _predictions(facts: Facts, probs: Tensor) -> atlas.Predictions:
    rejected = facts["rejected"]
    return atlas.Predictions(
        tuple(facts["names"]),
        tuple(facts["classes"]),
        probs,
        None if rejected is None else tuple(map(bool, rejected)),
    )


# ---- runs


def step_as_facts(step: atlas.Step) -> Facts:
    """A step without its parameters and its first recipe."""
    return {
        "index": step.index,
        "of": step.of,
        "loss": step.loss,
        "losses": step.losses,
        "lr": step.lr,
        "grad_norm": step.grad_norm,
        "scores": step.scores,
        "seconds": step.seconds,
        "phase": step.phase,
        "share": step.share,
        "estimates": [asdict(one) for one in step.estimates],
    }


def step_from(facts: Facts, *, preview: atlas.Recipe | None = None) -> atlas.Step:
    """The step of `step_as_facts`, with its first recipe if it brought one."""
    scores = facts["scores"]
    return atlas.Step(
        **{
            **facts,
            "losses": tuple(facts["losses"]),
            "scores": None if scores is None else tuple(scores),
            "estimates": tuple(atlas.Estimate(**one) for one in facts["estimates"]),
        },
        preview=preview,
    )


def result_as_message(result: atlas.AdaptResult, recipe_id: str) -> bytes:
    """A result whose recipe lies in the store under `recipe_id`, to be read by `result_from`."""
    recipes = {"recipe": result.recipe}
    recipes |= {f"alternative.{method}": recipe for method, recipe in result.alternatives.items()}
    facts = {
        "kind": "result",
        "recipe": recipe_id,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "history": [step_as_facts(step) for step in result.history],
        "seconds": result.seconds,
        "verdict": asdict(result.verdict),
        "estimates": [asdict(one) for one in result.estimates],
        "alternatives": list(result.alternatives),
        "advice": None if result.advice is None else asdict(result.advice),
    }
    return encode(facts, {name: _as_tensor(recipe.to_bytes()) for name, recipe in recipes.items()})


def result_from(facts: Facts, tensors: Tensors) -> atlas.AdaptResult:
    """The result of a decoded message."""
    return atlas.AdaptResult(
        recipe_from(tensors["recipe"]),
        atlas.Outcome(facts["outcome"]),
        facts["reason"],
        tuple(step_from(one) for one in facts["history"]),
        facts["seconds"],
        atlas.Verdict(**facts["verdict"]),
        tuple(atlas.Estimate(**one) for one in facts["estimates"]),
        {method: recipe_from(tensors[f"alternative.{method}"]) for method in facts["alternatives"]},
        None if facts["advice"] is None else _advice(facts["advice"]),
    )


def recipe_from(data: Tensor) -> atlas.Recipe:
    """The recipe in a tensor (bytes) uint8."""
    return atlas.Recipe.from_bytes(data.numpy().tobytes())


def step_as_message(step: atlas.Step) -> bytes:
    """A step with its first recipe, if it brings one."""
    preview = {} if step.preview is None else {"preview": _as_tensor(step.preview.to_bytes())}
    return encode({"kind": "step", "step": step_as_facts(step)}, preview)


def _advice(facts: Facts) -> atlas.Advice:
    points = {
        name: None if facts[name] is None else atlas.CurvePoint(**facts[name]) for name in ("now", "then")
    }
    curve = tuple(atlas.CurvePoint(**one) for one in facts["curve"])
    return atlas.Advice(**{**facts, **points, "curve": curve})


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
