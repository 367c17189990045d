"""What every exported format is made from: the recipe's network, its classes, its temperature."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atlas_engine.calibration import Calibration
from atlas_engine.clip.backbone import Backbone
from atlas_engine.errors import ExportError
from atlas_engine.recipe import Json, Recipe, RecipeNetwork

__all__ = ["Classifier", "LinearHead", "linear_head", "require_packages"]

LINEAR_TOLERANCE = 1e-3  # of logits that are up to 100: rounding is far below, a head of keys far above


@dataclass(frozen=True, eq=False)
class Classifier:
    """A recipe with the model that it makes: normalised images (N 3 S S) -> logits (N C)."""

    recipe: Recipe
    backbone: Backbone
    network: RecipeNetwork

    @property
    def calibration(self) -> Calibration:
        """The recipe's, or one that changes nothing."""
        return self.recipe.calibration or Calibration()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.recipe.classes

    @property
    def example(self) -> Tensor:
        """An input of the network, (1 3 S S)."""
        size = self.backbone.preprocessing.size
        return torch.zeros(1, 3, size, size, device=self.backbone.device)

    @property
    def nbytes(self) -> int:
        """Bytes of the network's weights in float32."""
        tensors = [*self.network.parameters(), *self.network.buffers(), *self.recipe.head.values()]
        return 4 * sum(tensor.numel() for tensor in tensors)

    def describe(self) -> dict[str, Json]:
        """Where the model comes from, and how its outputs are read, as plain values."""
        recipe, spec = self.recipe, self.backbone.preprocessing
        used = recipe.coefficients.values.flatten(1).any(dim=1).tolist()
        return {
            "classes": list(recipe.classes),
            "temperature": self.calibration.temperature,
            "reject_below": self.calibration.reject_below,
            "model": recipe.model,
            "model_fingerprint": recipe.model_fingerprint,
            "bank_fingerprint": recipe.bank_fingerprint,
            "task_vectors": [
                task for task, uses in zip(recipe.coefficients.tasks, used, strict=True) if uses
            ],
            "method": recipe.method,
            "seed": recipe.seed,
            "versions": dict(recipe.versions),
            "templates": None if recipe.templates is None else list(recipe.templates),
            "preprocessing": {
                "size": spec.size,
                "resize": spec.resize,
                "interpolation": spec.interpolation,
                "mean": list(spec.mean),
                "std": list(spec.std),
            },
        }

    def describe_as_texts(self) -> dict[str, str]:
        """The same as texts; lists and numbers are JSON."""
        return {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in self.describe().items()
        }


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A head that is linear in features z of length 1: logits = weight z + bias."""

    weight: Tensor  # (C D)
    bias: Tensor  # (C)


@torch.no_grad()
def linear_head(classifier: Classifier) -> LinearHead:
    """The recipe's head as a weight (C D) and a bias (C); an `ExportError` for a head that is not linear."""
    width = classifier.network.features(classifier.example).shape[1]
    head, device = classifier.network.head_for(width), classifier.backbone.device
    # a linear function is known by its values at zero and at the unit vectors
    bias = head.logits(torch.zeros(1, width, device=device))[0]
    weight = (head.logits(torch.eye(width, device=device)) - bias).T.contiguous()
    probe = nn.functional.normalize(
        torch.randn(8, width, generator=torch.Generator().manual_seed(0)), dim=1
    ).to(device)
    if not torch.allclose(head.logits(probe), probe @ weight.T + bias, atol=LINEAR_TOLERANCE):
        name = classifier.recipe.config.get("head")
        raise ExportError(
            f"the head '{name}' compares images with its keys, which this format has no place for. Export it "
            "as onnx, or adapt with another method, such as auto."
        )
    return LinearHead(weight.cpu(), bias.cpu())


def require_packages(*names: str) -> None:
    """Raise an `ExportError` that says what to install unless these packages are here."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(
            f"this format needs the Python package{'s' * (len(missing) > 1)} {' and '.join(missing)}. Run: "
            f"pip install {' '.join(missing)}"
        )
