"""A composed tower: the base stays untouched, the gradient is autograd's, materialised weights agree."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy, normalize

from atlas_engine import runtime
from atlas_engine.bank import TaskVectorBank
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder, cosine_logits, materialise
from atlas_engine.errors import BankError, ConfigError
from tests.tiny import (
    TOWERS,
    tiny_bank,
    tiny_clip,
    tiny_composer,
    tiny_encoder,
    tiny_head,
    tiny_images,
    tiny_lam,
    tiny_vectors,
)

LABELS = torch.tensor([0, 1, 2, 3, 0, 1])
SCALE = 10.0


def naive_loss(visual, vectors, lam, images, labels, *, head=None):
    """θ0 + Σ λ τ written out for autograd, and the loss there."""
    theta = {
        name: base.detach() + sum(lam[t, m] * vector.blocks[name] for t, vector in enumerate(vectors))
        for m, (name, base) in enumerate(visual.named_parameters())
    }
    features = normalize(functional_call(visual, theta, (images,)), dim=-1)
    return cross_entropy(
        cosine_logits(features, tiny_head() if head is None else head, logit_scale=SCALE), labels
    )


def loss_of(composition, images, labels, *, run=0):
    return cross_entropy(composition.logits(images, tiny_head(), logit_scale=SCALE, run=run), labels)


@pytest.mark.parametrize("tower", TOWERS)
def test_the_gradient_of_a_whole_step_is_that_of_naive_autograd(tower):
    visual = tiny_clip(tower).visual
    encoder = tiny_encoder(tower)
    lam = tiny_lam(encoder).requires_grad_()
    wanted_loss = naive_loss(visual, tiny_vectors(visual), lam, tiny_images(), LABELS)
    (wanted,) = torch.autograd.grad(wanted_loss, lam)
    composition = encoder.at(lam)
    loss = loss_of(composition, tiny_images(), LABELS)
    loss.backward()
    # float32 sums in another order: a few units in the sixth digit.
    torch.testing.assert_close(loss, wanted_loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        composition.gradient(), wanted, rtol=1e-3, atol=1e-5 * wanted.abs().max().item()
    )


@pytest.mark.parametrize("tower", TOWERS)
def test_zero_coefficients_are_exactly_the_base_model(tower):
    visual, encoder = tiny_clip(tower).visual, tiny_encoder(tower)
    composition = encoder.at(encoder.composer.initial())
    with torch.no_grad():
        assert torch.equal(composition.features(tiny_images()), normalize(visual(tiny_images()), dim=-1))


@pytest.mark.parametrize("tower", TOWERS)
def test_gradients_over_micro_batches_and_views_add_up_to_those_of_one_large_batch(tower):
    encoder = tiny_encoder(tower)
    lam, images, strong = tiny_lam(encoder), tiny_images(), tiny_images(seed=9)
    composition = encoder.at(lam)
    (loss_of(composition, images, LABELS) + loss_of(composition, strong, LABELS)).backward()
    whole = composition.gradient()
    composition = encoder.at(lam)
    for rows in (slice(0, 2), slice(2, 6)):
        for view in (images, strong):
            (loss_of(composition, view[rows], LABELS[rows]) * len(LABELS[rows]) / 6).backward()
    # The same terms, added in another order.
    torch.testing.assert_close(composition.gradient(), whole, rtol=1e-3, atol=1e-5 * whole.abs().max().item())


def test_the_bank_is_read_once_per_step_whatever_the_number_of_forwards():
    visual = tiny_clip().visual
    calls = []

    class Counting(Composer):
        def compose(self, lam, **options):
            calls.append("compose")
            return super().compose(lam, **options)

        def gradient(self, grads):
            calls.append("gradient")
            return super().gradient(grads)

    encoder = ComposedEncoder(visual, Counting(dict(visual.named_parameters()), tiny_bank(visual)))
    composition = encoder.at(tiny_lam(encoder))
    for _ in range(3):
        loss_of(composition, tiny_images(), LABELS).backward()
    composition.gradient()
    assert calls == ["compose", "gradient"]


@pytest.mark.parametrize("tower", TOWERS)
def test_the_shared_base_model_is_never_written(tower):
    visual = tiny_clip(tower).visual
    before = {name: tensor.clone() for name, tensor in visual.state_dict().items()}
    flags = [(p.requires_grad, p.grad) for p in visual.parameters()]
    visual.train()
    try:
        encoder = tiny_encoder(tower)
        composition = encoder.at(tiny_lam(encoder))
        loss_of(composition, tiny_images(), LABELS).backward()
        composition.gradient()
        assert all(module.training for module in visual.modules())
    finally:
        visual.eval()
    assert all(torch.equal(before[name], tensor) for name, tensor in visual.state_dict().items())
    assert [(p.requires_grad, p.grad) for p in visual.parameters()] == flags


def test_batch_norm_keeps_the_statistics_of_the_base_while_gradients_flow():
    visual = tiny_clip("resnet").visual
    visual.train()
    try:
        encoder = tiny_encoder("resnet")
        lam = tiny_lam(encoder)
        one = encoder.at(lam).features(tiny_images()[:1])
        among_others = encoder.at(lam).features(tiny_images())[:1]
    finally:
        visual.eval()
    # Batch statistics would make an image's features depend on its neighbours, by far more than rounding.
    torch.testing.assert_close(one, among_others, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tower", TOWERS)
def test_several_runs_at_once_are_the_same_runs_one_by_one(tower):
    encoder = tiny_encoder(tower)
    lams = tiny_lam(encoder, runs=3)
    composition = encoder.at(lams)
    for run in (2, 0, 1, 0):
        loss_of(composition, tiny_images(seed=run), LABELS, run=run).backward()
    together = composition.gradient()
    for run, times in ((0, 2), (1, 1), (2, 1)):
        alone = encoder.at(lams[run])
        (times * loss_of(alone, tiny_images(seed=run), LABELS)).backward()
        grad = alone.gradient()
        torch.testing.assert_close(together[run], grad, rtol=1e-3, atol=1e-5 * grad.abs().max().item())


def test_the_gradient_has_the_shape_of_the_coefficients():
    encoder = tiny_encoder()
    for runs in (None, 1, 2):
        lam = tiny_lam(encoder, runs=runs)
        assert encoder.at(lam).gradient().shape == lam.shape
        assert not encoder.at(lam).gradient().any(), "nothing went backward"


def test_gradients_do_not_leak_into_the_next_step():
    encoder = tiny_encoder()
    for lam in (tiny_lam(encoder), tiny_lam(encoder, runs=2)):
        loss_of(encoder.at(lam), tiny_images(), LABELS).backward()
        assert not encoder.at(lam).gradient().any()


def test_a_block_that_no_image_passes_through_gets_a_gradient_of_zero():
    class Idle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used = torch.nn.Parameter(torch.ones(4, 3 * 32 * 32) / 50)
            self.idle = torch.nn.Parameter(torch.ones(5))

        def forward(self, images):
            return images.flatten(1) @ self.used.T

    composer = tiny_composer(Idle())
    composition = ComposedEncoder(Idle(), composer).at(composer.initial())
    composition.features(tiny_images())[:, 0].sum().backward()
    grad = composition.gradient()
    idle = composer.blocks.index("idle")
    assert not grad[:, idle].any()
    assert grad[:, 1 - idle].abs().min() > 0


def test_a_composition_is_void_when_the_encoder_composes_another():
    encoder = tiny_encoder()
    old = encoder.at(tiny_lam(encoder))
    encoder.at(tiny_lam(encoder))
    with pytest.raises(ConfigError, match="out of date"):
        old.features(tiny_images())
    with pytest.raises(ConfigError, match="out of date"):
        old.gradient()


@pytest.mark.parametrize("shape", [(3,), (0, 3, 34), (2, 2, 3, 34), (34, 3)])
def test_coefficients_of_another_shape_are_refused(shape):
    with pytest.raises(ConfigError, match="do not fit"):
        tiny_encoder().at(torch.zeros(shape))


def test_autocast_gives_nearly_the_same_gradient():
    visual = tiny_clip().visual
    composer = tiny_composer(visual)
    grads = []
    for dtype in (None, torch.bfloat16):
        composition = ComposedEncoder(visual, composer, autocast=dtype).at(composer.initial())
        logits = composition.logits(tiny_images(), tiny_head(), logit_scale=SCALE)
        assert logits.dtype == torch.float32
        cross_entropy(logits, LABELS).backward()
        grads.append(composition.gradient().flatten())
    assert not torch.equal(*grads)
    # bfloat16 keeps 8 bits of each product; the direction survives.
    assert torch.cosine_similarity(*grads, dim=0) > 0.99


def test_the_precision_of_the_machine_is_used_and_coefficients_stay_float32(monkeypatch):
    visual = tiny_clip().visual
    composer = tiny_composer(visual)
    found = []
    for word in ("off", "bfloat16"):
        monkeypatch.setenv("ATLAS_AUTOCAST", word)
        composition = ComposedEncoder(visual, composer).at(composer.initial())
        features = composition.features(tiny_images())
        features.sum().backward()
        assert features.dtype == composition.gradient().dtype == torch.float32
        found.append(features.detach())
    assert not torch.equal(*found)
    # unit features from products with 8 bits: errors of about 2^-8, as directions
    assert torch.nn.functional.cosine_similarity(*found).min() > 0.999


def test_encoders_in_different_threads_do_not_disturb_each_other():
    visual = tiny_clip().visual
    composer = tiny_composer(visual)
    lams = [tiny_lam(tiny_encoder(), seed=seed) for seed in range(4)]
    wanted = [ComposedEncoder(visual, composer).at(lam).features(tiny_images()) for lam in lams]
    wrong = []

    def work(lam, features):
        encoder = ComposedEncoder(visual, composer)
        for _ in range(10):
            if not torch.allclose(encoder.at(lam).features(tiny_images()), features, atol=1e-5):
                wrong.append(lam)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(lams, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("tower", TOWERS)
def test_a_materialised_tower_says_what_the_composition_says_and_costs_what_the_base_costs(tower):
    visual, encoder = tiny_clip(tower).visual, tiny_encoder(tower)
    lam = tiny_lam(encoder)
    with torch.no_grad():
        composed = encoder.at(lam).features(tiny_images())
        adapted = materialise(visual, encoder.composer.compose(lam))
        assert torch.equal(normalize(adapted(tiny_images()), dim=-1), composed)
        assert not torch.equal(adapted(tiny_images()), visual(tiny_images()))
    assert type(adapted) is type(visual)
    assert [n for n, _ in adapted.named_parameters()] == [n for n, _ in visual.named_parameters()]
    assert adapted.state_dict().keys() == visual.state_dict().keys()
    assert not any(p.requires_grad for p in adapted.parameters())


def test_writing_to_a_materialised_tower_leaves_the_base_alone():
    visual = tiny_clip("resnet").visual
    before = {name: tensor.clone() for name, tensor in visual.state_dict().items()}
    composer = tiny_composer(visual)
    some = dict(list(composer.compose(composer.initial()).items())[:2])
    adapted = materialise(visual, some)
    with torch.no_grad():
        for tensor in adapted.state_dict().values():
            tensor.zero_()
    assert all(torch.equal(before[name], tensor) for name, tensor in visual.state_dict().items())


def test_tied_parameters_stay_tied():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 4, bias=False)
            self.second = torch.nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, rows):
            return self.second(self.first(rows))

    adapted = materialise(Tied(), {"first.weight": 2 * torch.eye(4)})
    assert torch.equal(adapted(torch.ones(1, 4)), 4 * torch.ones(1, 4))


def test_a_bank_of_another_tower_is_refused_by_name():
    with pytest.raises(BankError, match=r"no parameter 'bn1\.weight'"):
        ComposedEncoder(tiny_clip("vit").visual, tiny_composer(tiny_clip("resnet").visual))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "blocks"), [("ViT-B-32", 152), ("RN50", 174)])
def test_towers_of_full_size_have_the_gradient_of_naive_autograd(name, blocks):
    runtime.ensure_torchvision()
    import open_clip

    with torch.random.fork_rng():
        torch.manual_seed(0)
        visual = open_clip.create_model(name).visual.eval()
    vectors = tiny_vectors(visual, tasks=1, size=0.01)
    encoder = ComposedEncoder(
        visual, Composer(dict(visual.named_parameters()), TaskVectorBank.from_vectors(vectors))
    )
    lam = tiny_lam(encoder).requires_grad_()
    assert lam.shape == (1, blocks)
    images, head = (
        torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)),
        torch.eye(2, visual.output_dim),
    )
    composition = encoder.at(lam)
    cross_entropy(composition.logits(images, head, logit_scale=SCALE), torch.tensor([0, 1])).backward()
    wanted_loss = naive_loss(visual, vectors, lam, images, torch.tensor([0, 1]), head=head)
    (wanted,) = torch.autograd.grad(wanted_loss, lam)
    # Sums of up to 2.4 million float32 products, in another order.
    assert torch.cosine_similarity(composition.gradient().flatten(), wanted.flatten(), dim=0) > 0.99999
