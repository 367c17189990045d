"""What is trained: EfficientNet-Lite0 and the head on top of it.

It starts where nothing needs to be learned: the tower as it was published, and a head that mixes the
concepts' embeddings as the tower's own classifier asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from atlas_engine.clip.bundled import ConceptHead
from studies.bundled_model import batches
from studies.bundled_model.towers import lite0
from studies.bundled_model.words import WordEmbeddings

__all__ = ["HALF", "Student", "features_of"]

HALF = (0.5, 0.5, 0.5)  # the mean and deviation that EfficientNet-Lite0 was trained with
TEMPERATURE = 1.7  # of the concepts at the start
MEASURED = 2048  # images that give a feature's mean and deviation
CHUNK = 64
RATES = {"concept_weight": 0.15, "concept_bias": 0.15, "meaning": 0.5, "rest_weight": 1.0, "rest_bias": 1.0}
"""What the head learns, and at which share of the tower's learning rate."""


class Student:
    """The tower, and the head's tensors while they learn. `rest` works on features of mean 0, deviation 1."""

    def __init__(self, tower: Any, head: dict[str, Tensor], *, mean: Tensor, deviation: Tensor) -> None:  # noqa: ANN401
        self.tower = tower
        self.tower.classifier.requires_grad_(False)
        self.head = {name: tensor.requires_grad_(name in RATES) for name, tensor in head.items()}
        self._mean, self._deviation = mean, deviation
        self._module = ConceptHead()

    @classmethod
    def start(cls, words: WordEmbeddings, pixels: Tensor) -> Student:
        """The student before any step; some of `pixels` (N 3 S S) give the features' mean and deviation."""
        tower: Any = lite0()
        some = pixels[:: max(1, len(pixels) // MEASURED)][:MEASURED]
        features = torch.cat([_frozen_features(tower, part) for part in torch.split(some, CHUNK)])
        head = {name: tensor.clone() for name, tensor in ConceptHead().named_buffers()}
        head["concept_weight"] = tower.classifier.weight.detach() / TEMPERATURE
        head["concept_bias"] = tower.classifier.bias.detach() / TEMPERATURE
        head["meaning"] = words.concepts.clone()
        deviation = features.std(dim=0, correction=0).clamp_min(1e-3)
        return cls(tower, head, mean=features.mean(dim=0), deviation=deviation)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """What is learned at which peak learning rate; only the tower's weights decay."""
        tower = [weight for weight in self.tower.parameters() if weight.requires_grad]
        head = [
            {"params": [self.head[name]], "peak": lr * share, "weight_decay": 0.0}
            for name, share in RATES.items()
        ]
        return [{"params": tower, "peak": lr}, *head]

    def read(self, features: Tensor) -> Tensor:
        """The head's embedding of features (B D), of length 1."""
        weight = self.head["rest_weight"] / self._deviation
        folded = {
            **self.head,
            "rest_weight": weight,
            "rest_bias": self.head["rest_bias"] - weight @ self._mean,
        }
        read: Tensor = functional_call(_Read(self._module), _under("head", folded), (features,))
        return read

    def finished_head(self) -> dict[str, Tensor]:
        """The head's tensors, made to take features as the tower gives them."""
        weight = self.head["rest_weight"].detach() / self._deviation
        head = {name: tensor.detach().clone() for name, tensor in self.head.items()}
        return head | {"rest_weight": weight, "rest_bias": head["rest_bias"] - weight @ self._mean}

    def state(self) -> dict[str, Tensor]:
        """Everything that training changes, by name."""
        head = {name: tensor.detach() for name, tensor in self.head.items()}
        return _under("tower", self.tower.state_dict()) | _under("head", head)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state."""
        self.tower.load_state_dict(_within("tower", state))
        with torch.no_grad():
            for name, tensor in _within("head", state).items():
                self.head[name].copy_(tensor)


def features_of(tower: Any, images: Tensor) -> Tensor:  # noqa: ANN401 - timm has no types
    """The features (B D) before the classifier, of images (B 3 S S) in 0 … 1."""
    maps = tower.forward_features(batches.normalise(images, HALF, HALF))
    features: Tensor = tower.forward_head(maps, pre_logits=True)
    return features


class _Read(nn.Module):
    """The head's reading alone, as a module that can be called with other tensors."""

    def __init__(self, head: ConceptHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor) -> Tensor:
        return self.head.semantic_embedding(features)


@torch.no_grad()
def _frozen_features(tower: Any, pixels: Tensor) -> Tensor:  # noqa: ANN401
    return features_of(tower, pixels.float() / 255)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
