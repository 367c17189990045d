"""One step of `paper` on the whole image tower of ViT-B/32, with random weights, against autograd."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.optimise import BatchRequest
from atlas_engine.adapt.samplers import FreshViewSampler
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.data.augment import ResizedCrop
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from tests.drawn import write_pictures

MOST_DIFFERENCE = 1e-5  # of a gradient of length 1; sums of millions of float32 in another order


@pytest.fixture(scope="module")
def engine():
    """A session with the image tower of ViT-B/32 and random class embeddings."""
    runtime.ensure_torchvision()
    import open_clip
    from open_clip.transformer import VisionTransformer

    sizes = open_clip.get_model_config("ViT-B-32")
    vision = sizes["vision_cfg"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        visual = VisionTransformer(
            image_size=vision["image_size"],
            patch_size=vision["patch_size"],
            width=vision["width"],
            layers=vision["layers"],
            heads=vision["width"] // 64,
            mlp_ratio=4.0,
            output_dim=sizes["embed_dim"],
        ).eval()

    def encode_text(sentences: Sequence[str]) -> torch.Tensor:
        draws = [torch.Generator().manual_seed(sum(map(ord, sentence))) for sentence in sentences]
        return torch.stack([torch.randn(sizes["embed_dim"], generator=draw) for draw in draws])

    return Atlas(
        Backbone(
            name="ViT-B-32",
            visual=visual,
            preprocessing=Preprocessing(size=224, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
            logit_scale=100.0,
            dim=sizes["embed_dim"],
            templates="plain",
            device=torch.device("cpu"),
            encode_text=encode_text,
        )
    )


@pytest.fixture(scope="module")
def bank(engine):
    draw = torch.Generator().manual_seed(1)
    base = {name: weights.detach() for name, weights in engine.backbone.visual.named_parameters()}

    def tuned(weights):
        spread = 0.3 * (weights.std(correction=0) + 0.01)
        return torch.rand(weights.shape, generator=draw).sub_(0.5).mul_(spread).add_(weights)

    return TaskVectorBank.from_vectors(
        [
            TaskVector.between(name, base=base, tuned={key: tuned(value) for key, value in base.items()})
            for name in ("one", "other")
        ]
    )


def unit_gradient(engine, bank, lam, inputs, labels, text):
    """∂CE/∂λ by autograd through θ0 + Σ λ τ, of length 1."""
    lam = lam.clone().requires_grad_()
    vectors = [bank.vector(name).blocks for name in bank.tasks]
    theta = {
        name: weights.detach() + sum(lam[t, m] * vectors[t][name] for t in range(len(vectors)))
        for m, (name, weights) in enumerate(engine.backbone.visual.named_parameters())
    }
    features = torch.func.functional_call(engine.backbone.visual, theta, (inputs,))
    logits = engine.backbone.logit_scale * F.normalize(features, dim=-1) @ text.T
    (grad,) = torch.autograd.grad(F.cross_entropy(logits, labels), lam)
    return grad / grad.norm()


def test_a_step_is_the_formula_on_all_blocks_of_vit_b32(engine, bank, tmp_path):
    assert (len(bank.blocks), bank.blocks.numel) == (152, 87_849_216)
    support = Support.from_folder(write_pictures(tmp_path / "set", {"red": 1, "blue": 1}))
    labels, text = torch.tensor(support.labels), engine.head(support.classes)
    # the gradient away from zero-shot, on the images as they are
    lam = 0.1 * torch.randn(2, 152, generator=torch.Generator().manual_seed(2))
    part = TrainablePart(engine.backbone, bank, share=1.0)
    inputs = part.activations(engine.pixels(support.images).float() / 255)
    composition = ComposedEncoder(part.tower, part.composer()).at(lam)
    logits = composition.logits(inputs, text, logit_scale=engine.backbone.logit_scale)
    F.cross_entropy(logits, labels).backward()
    found = composition.gradient()
    expected = unit_gradient(engine, bank, lam, inputs, labels, text)
    torch.testing.assert_close(found / found.norm(), expected, atol=MOST_DIFFERENCE, rtol=0)
    # λ after the first step, from the batch that the run draws with its own generator
    config = FewShotConfig(steps=1, batch=2)
    learned = engine.few_shot(support, method="paper", bank=bank, config=config, seed=3).result()
    sampler = FreshViewSampler(
        engine.pixels(support.images),
        labels[None],
        size=2,
        view=ResizedCrop(),
        to_input=engine.backbone.as_input,
    )
    batch = sampler(BatchRequest(0, 1, 0, runtime.generator(3), lambda images: images))
    unit = unit_gradient(engine, bank, torch.zeros_like(lam), batch.images, batch.labels, text)
    step = -0.1 * unit / (unit.abs() + 1e-8)  # AdamW's first step at the paper's learning rate
    sure = unit.abs() > MOST_DIFFERENCE  # elsewhere rounding decides the sign
    assert sure.float().mean() > 0.9
    torch.testing.assert_close(learned.coefficients.values[sure], step[sure], atol=1e-5, rtol=0)
