"""Small models with a bank and recipes of every kind of head, for the tests of exports."""

from __future__ import annotations

import dataclasses
import functools

import torch

from atlas_engine.bank import TaskVectorBank
from atlas_engine.clip.feature_levels import with_feature_levels
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.engine import Atlas
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.registry import FeatureLevel, find_head
from atlas_engine.recipe import Recipe, RecipeNetwork
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

CLASSES = ("otter", "sea lion", "</script>")


@functools.cache
def small_bank() -> TaskVectorBank:
    return tiny_bank(tiny_engine().backbone.visual, tasks=2)


def session_with_bank() -> Atlas:
    """The small model's session, with its bank."""
    opened = Atlas(tiny_engine().backbone)
    opened.__dict__["bank"] = small_bank()  # where the session itself keeps a bank that it has read
    return opened


def make_recipe(head: str = "none", *, engine: Atlas | None = None, classes=CLASSES) -> Recipe:
    """A recipe that moves every block of the small model, with a head fitted to random images."""
    engine, bank = engine or tiny_engine(), small_bank()
    layout = Layout()
    shape = layout.shape(len(bank.tasks), bank.blocks)
    values = 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(4))
    plain = Recipe(
        coefficients=Coefficients(values, layout, bank.tasks, bank.blocks),
        model=engine.backbone.name,
        model_fingerprint=engine.fingerprint,
        bank_fingerprint=bank.fingerprint,
        classes=tuple(classes),
        method=head,
    )
    spec = find_head(head)
    if head == "none":
        return plain
    # features of the levels that the head works on, by a network that has a head of no tensors
    tower, text = engine.adapted(plain, bank=bank), engine.head(plain.classes)
    network = RecipeNetwork(plain, tower, engine.backbone, text)
    if spec.feature_level is not FeatureLevel.projected:
        network.tower = with_feature_levels(tower)
    images = torch.randn(9, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        features = torch.nn.functional.normalize(network.features(images), dim=1)
    zero_shot = network.head_for(features.shape[1])
    labels = torch.arange(9) % len(classes)
    support = LabelledFeatures(features, labels, zero_shot.text, logit_scale=zero_shot.logit_scale)
    tensors = {name: tensor.half() for name, tensor in spec.fit_alone(support).tensors.items()}
    return dataclasses.replace(plain, config={"head": head}, head=tensors)
