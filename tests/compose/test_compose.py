"""θ(λ) and ∂L/∂λ, proven by the naive formulation, finite differences, linearity and permutation."""

from __future__ import annotations

import functools

import pytest
import torch

from atlas_engine import runtime
from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.bank.kernels import cpu
from atlas_engine.bank.storage import STORAGES
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.errors import BankError, ConfigError
from studies.speed.naive import naive_compose
from tests.bank.tuned import base_gradient, base_weights, drawn, loss_at, tuned_vectors

LAYOUTS = [
    Layout(),
    Layout("isotropic"),
    Layout("matrices"),
    Layout(partitions=3),
    Layout(partitions=3, split_by="rows"),
]


@functools.cache
def bank(storage: str = "float32") -> TaskVectorBank:
    return TaskVectorBank.from_vectors(tuned_vectors(), storage=storage)


def composer(storage: str = "float32", layout: Layout | None = None) -> Composer:
    return Composer(base_weights(), bank(storage), layout)


def drawn_lam(shape, *, seed: int = 0, size: float = 0.5) -> torch.Tensor:
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def as_doubles(weights):
    return {name: tensor.double() for name, tensor in weights.items()}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.int32)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0).item()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("storage", STORAGES)
def test_zero_coefficients_give_back_the_base_model_bit_for_bit(storage, layout):
    one = composer(storage, layout)
    theta = one.compose(one.initial())
    assert list(theta) == list(base_weights())
    assert all(torch.equal(bits(theta[name]), bits(base)) for name, base in base_weights().items())


def test_a_negative_zero_in_the_base_stays_negative():
    base = {name: weights.clone() for name, weights in base_weights().items()}
    base["proj"][0, 0] = base["ln_pre.bias"][3] = -0.0
    one = Composer(base, bank())
    theta = one.compose(one.initial())
    assert all(torch.equal(bits(theta[name]), bits(weights)) for name, weights in base.items())
    moved = one.compose(one.initial(0.5))["proj"][0, 0]
    assert moved == 0.5 * bank().vectors_of("proj")[:, 0].sum()


def test_composition_equals_the_naive_formulation():
    lam = drawn_lam(composer().shape)
    wanted = naive_compose(base_weights(), [vector.blocks for vector in tuned_vectors()], lam)
    theta = composer().compose(lam)
    for name, weights in wanted.items():
        assert torch.allclose(theta[name], weights, rtol=1e-6, atol=1e-7)  # float32 sums in another order


def test_the_gradient_equals_autograd_through_the_naive_formulation():
    one, lam = composer(), drawn_lam(composer().shape).requires_grad_()
    images, labels = drawn(1, torch.Generator().manual_seed(5))
    naive = naive_compose(base_weights(), [vector.blocks for vector in tuned_vectors()], lam)
    loss_at(naive, images, labels).backward()
    leaves = {name: w.detach().clone().requires_grad_() for name, w in one.compose(lam).items()}
    loss_at(leaves, images, labels).backward()
    ours = one.gradient({name: leaf.grad for name, leaf in leaves.items()})
    assert ours.shape == lam.shape
    assert torch.allclose(ours, lam.grad, rtol=1e-3, atol=1e-5 * lam.grad.abs().max())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_gradient_equals_finite_differences(layout):
    """A loss quadratic in θ has exact central differences, up to float64's rounding."""
    base = as_doubles(base_weights())
    one = Composer(base, bank(), layout)
    lam = drawn_lam(one.shape).double()
    pull = {name: torch.sin(torch.arange(w.numel())).view(w.shape).double() for name, w in base.items()}

    def loss(at: torch.Tensor) -> float:
        theta = one.compose(at)
        return sum(((theta[n] - pull[n]) ** 2).sum().item() for n in base)

    theta = one.compose(lam)
    grad = one.gradient({name: 2 * (theta[name] - pull[name]) for name in base})
    assert grad.dtype == torch.float64
    spots = torch.randperm(lam.numel(), generator=torch.Generator().manual_seed(1))[:12]
    for spot in spots.tolist():
        step = torch.zeros(lam.numel(), dtype=torch.float64)
        step[spot] = 0.5
        step = step.view(one.shape)
        slope = loss(lam + step) - loss(lam - step)
        assert grad.flatten()[spot].item() == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_composition_is_linear():
    one = Composer(as_doubles(base_weights()), bank())
    a, b = drawn_lam(one.shape, seed=1).double(), drawn_lam(one.shape, seed=2).double()
    at_a, at_b, at_sum = (one.compose(lam) for lam in (a, b, 2 * a - 3 * b))
    for name, base in base_weights().items():
        moved = 2 * (at_a[name] - base) - 3 * (at_b[name] - base)
        assert torch.allclose(at_sum[name] - base, moved, atol=1e-12)


def test_the_order_of_tasks_does_not_matter():
    turned = Composer(base_weights(), bank().select(bank().tasks[::-1]))
    lam = drawn_lam(composer().shape)
    straight, back = composer().compose(lam), turned.compose(lam.flip(0))
    for name in straight:
        assert torch.allclose(straight[name], back[name], atol=1e-6)
    assert torch.allclose(composer().gradient(base_gradient()), turned.gradient(base_gradient()).flip(0))


def test_a_bank_with_one_left_out_composes_like_one_that_never_had_it():
    shared = Composer(base_weights(), bank().without(["disks"]))
    apart = Composer(base_weights(), TaskVectorBank.from_vectors([tuned_vectors()[0], tuned_vectors()[2]]))
    lam = drawn_lam(apart.shape)
    assert shared.shape == apart.shape
    for name, theta in shared.compose(lam).items():
        assert torch.allclose(theta, apart.compose(lam)[name], atol=1e-7)
    one, other = (composer.gradient(base_gradient()) for composer in (shared, apart))
    # the two sum the same float32 products in an order of their own: off by some eps of |τ|·|g|
    lengths = torch.stack([base_gradient()[block.name].norm() for block in apart.blocks])
    rounding = 4 * torch.finfo(torch.float32).eps * apart.bank.block_norms * lengths
    assert ((one - other).abs() <= rounding).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("storage", ["float32", "float16", "int8", "int4", "low-rank-16"])
def test_batched_runs_equal_one_by_one(storage, layout):
    one = composer(storage, layout)
    lam = drawn_lam((4, *one.shape))
    theta = one.compose(lam)
    grads = one.buffers(4)
    grads.flat.copy_(theta.flat)
    together = one.gradient(grads)
    # A float16 bank sums one run in another kernel than several, right to 11 bits.
    rough = 1e-3 if storage == "float16" else 1e-5
    for run in range(4):
        alone = one.compose(lam[run])
        for name, weights in alone.items():
            moved = (weights - base_weights()[name]).abs().max()
            assert torch.allclose(
                theta[name][run], weights, rtol=0, atol=rough * moved.item() + 3e-7
            )  # 2 ulp of 1
        single = one.gradient({name: weights[run] for name, weights in theta.items()})
        assert torch.allclose(together[run], single, rtol=0, atol=rough * single.abs().max().item())


def test_one_run_may_be_batched_too():
    one = composer()
    lam = drawn_lam((1, *one.shape))
    theta = one.compose(lam)
    assert torch.equal(theta["proj"][0], one.compose(lam[0])["proj"])
    assert one.gradient(theta).shape == (1, *one.shape)


@pytest.mark.parametrize(
    ("storage", "least"), [("float16", 1 - 1e-6), ("bfloat16", 0.9999), ("int8", 0.999), ("int4", 0.99)]
)
def test_narrow_storage_keeps_the_direction_of_the_gradient(storage, least):
    wanted = composer().gradient(base_gradient())
    found = composer(storage).gradient(base_gradient())
    assert cosine(found, wanted) >= least


@pytest.mark.parametrize("storage", ["float32", "float16", "bfloat16", "int8", "int4"])
def test_a_block_large_enough_for_machine_code_composes_like_its_stored_numbers(storage):
    draw = torch.Generator().manual_seed(7)
    base = {"w": torch.randn(512, 512, generator=draw)}
    vectors = [
        TaskVector(f"t{t}", {"w": 1e-2 * torch.randn(512, 512, generator=draw)}, "b") for t in range(4)
    ]
    large = TaskVectorBank.from_vectors(vectors, storage=storage)
    one, tau = Composer(base, large), large.vectors_of("w").double()
    lam, pull = drawn_lam((2, 4, 1)), torch.randn(2, 512, 512, generator=draw)
    # Without numba float16 is right to 11 bits; the base's own rounding, 2e-7 of 4, is there in any case.
    rough = 1e-5 if cpu.is_available(storage) or storage != "float16" else 2e-3
    for runs in (lam, lam[:1]):
        moved = one.compose(runs)["w"].double() - base["w"]
        wanted = torch.einsum("rtm,tn->rn", runs.double(), tau).view_as(moved)
        assert torch.allclose(moved, wanted, rtol=0, atol=rough * wanted.abs().max().item() + 5e-7)
        grad = one.gradient({"w": pull[: len(runs)]})[..., 0].double()
        exact = pull[: len(runs)].flatten(1).double() @ tau.t()
        assert torch.allclose(grad, exact, rtol=0, atol=rough * exact.abs().max().item())


def test_one_part_equals_blockwise_and_equal_parts_equal_one():
    lam = drawn_lam(composer().shape)
    whole = composer().compose(lam)
    assert composer(layout=Layout(partitions=1, seed=9)).shape == lam.shape
    parts = composer(layout=Layout(partitions=4, seed=9))
    split = parts.compose(lam.unsqueeze(-1).expand(-1, -1, 4).contiguous())
    for name in whole:
        assert torch.allclose(whole[name], split[name], atol=1e-6)
    grads = parts.gradient(base_gradient())
    assert torch.allclose(grads.sum(-1), composer().gradient(base_gradient()), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("block", ["proj", "ln_pre.bias", "class_embedding"])
def test_each_part_moves_its_own_numbers(block):
    parts = composer(layout=Layout(partitions=300, seed=3))  # more parts than a norm has numbers
    m = parts.blocks.index(block)
    lam = parts.initial()
    lam[1, m, 5] = 2.0
    moved = parts.compose(lam)[block] - base_weights()[block]
    mine = parts.layout.split(moved.numel()).view(moved.shape) == 5
    tau = bank().vectors_of(block)[1].view(moved.shape)
    assert torch.allclose(moved, torch.where(mine, 2 * tau, torch.zeros(()).float()), atol=1e-7)
    assert 0 < int(mine.sum()) < mine.numel()


def test_coefficients_of_empty_parts_have_no_gradient():
    parts = composer(layout=Layout(partitions=300))
    grad = parts.gradient(base_gradient())
    m = parts.blocks.index("ln_pre.bias")  # 192 numbers
    assert torch.count_nonzero(grad[:, m, 192:]) == 0
    assert torch.count_nonzero(grad[:, m, :192]) > 0


def test_buffers_are_used_again_and_lie_in_one_piece():
    one = composer()
    buffers = one.buffers()
    first = one.compose(drawn_lam(one.shape, seed=1), into=buffers)
    assert first is buffers
    assert all(
        view.untyped_storage().data_ptr() == buffers.flat.untyped_storage().data_ptr()
        for view in first.values()
    )
    again = one.compose(drawn_lam(one.shape, seed=2), into=buffers)
    fresh = one.compose(drawn_lam(one.shape, seed=2))
    assert all(torch.equal(again[name], fresh[name]) for name in fresh)


def test_gradients_added_up_in_buffers_equal_those_given_by_name():
    one, buffers = composer(), composer().buffers()
    for name, g in base_gradient().items():
        buffers[name].add_(g)
    assert torch.equal(one.gradient(buffers), one.gradient(base_gradient()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_base_in_half_precision_gets_weights_of_its_own_dtype(dtype):
    base = {name: weights.to(dtype) for name, weights in base_weights().items()}
    one = Composer(base, bank())
    lam = drawn_lam(one.shape)
    theta = one.compose(lam)
    assert theta["proj"].dtype == dtype
    zero = one.compose(one.initial())
    assert all(torch.equal(zero[name], weights) for name, weights in base.items())
    wide = Composer({name: weights.float() for name, weights in base.items()}, bank()).compose(lam)
    assert torch.equal(theta["proj"], wide["proj"].to(dtype))  # summed in float32, rounded once
    assert one.gradient(theta).dtype == torch.float32


def test_autocast_does_not_reach_the_kernel():
    one, lam = composer(), drawn_lam(composer().shape)
    plain_theta, plain_grad = one.compose(lam), one.gradient(base_gradient())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theta, grad = one.compose(lam), one.gradient(base_gradient())
    assert all(torch.equal(theta[name], plain_theta[name]) for name in theta)
    assert torch.equal(grad, plain_grad)


def test_nothing_of_the_bank_or_base_enters_a_graph():
    one = composer()
    lam = drawn_lam(one.shape).requires_grad_()
    theta = one.compose(lam)
    assert not any(weights.requires_grad for weights in theta.values())
    assert not one.gradient(theta).requires_grad


def test_a_base_that_does_not_fit_is_refused_with_a_list():
    base = base_weights()
    with pytest.raises(BankError, match="proj is missing"):
        Composer({name: w for name, w in base.items() if name != "proj"}, bank())
    with pytest.raises(BankError, match=r"proj is \(1, 2\), needs \(192, 32\)"):
        Composer({**base, "proj": torch.zeros(1, 2)}, bank())
    with pytest.raises(BankError, match="mixes float16, float32"):
        Composer({**base, "proj": base["proj"].half()}, bank())
    with pytest.raises(BankError, match="on cpu but the base model on cpu, meta"):
        Composer({**base, "proj": base["proj"].to("meta")}, bank())


def test_coefficients_and_buffers_of_the_wrong_shape_are_refused():
    one = composer()
    for shape in [(2,), (3, 31), (4, 2, 3, 32), ()]:
        with pytest.raises(ConfigError, match="do not fit"):
            one.compose(torch.zeros(shape))
    with pytest.raises(ConfigError, match="buffers"):
        one.compose(drawn_lam((2, *one.shape)), into=one.buffers(3))


def test_a_missing_gradient_is_named():
    with pytest.raises(BankError, match=r"block 'proj' \(1 are missing\)"):
        composer().gradient({name: g for name, g in base_gradient().items() if name != "proj"})


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ViT-B-32", "RN50"])
def test_a_full_size_tower_composes_like_the_naive_formulation(model):
    runtime.ensure_torchvision()
    import open_clip

    torch.manual_seed(0)
    visual = open_clip.create_model(model, pretrained=None).visual
    base = {name: weights.detach() for name, weights in visual.named_parameters()}
    draw = torch.Generator().manual_seed(1)
    vectors = [
        TaskVector(
            f"t{t}",
            {n: torch.empty_like(w).uniform_(-1e-3, 1e-3, generator=draw) for n, w in base.items()},
            "b",
        )
        for t in range(2)
    ]
    one = Composer(base, TaskVectorBank.from_vectors(vectors))
    lam = drawn_lam(one.shape).requires_grad_()
    theta, naive = one.compose(lam), naive_compose(base, [vector.blocks for vector in vectors], lam)
    assert all(torch.allclose(theta[name], weights, atol=1e-6) for name, weights in naive.items())
    pull = {name: torch.empty_like(w).uniform_(-1, 1, generator=draw) for name, w in base.items()}
    sum((naive[name] * pull[name]).sum() for name in base).backward()
    assert cosine(one.gradient(pull), lam.grad) > 1 - 1e-6
    zero = one.compose(one.initial())
    assert all(torch.equal(bits(zero[name]), bits(weights)) for name, weights in base.items())
