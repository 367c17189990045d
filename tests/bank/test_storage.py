"""Storage formats on vectors from real fine-tuning: how near they stay, and that products agree with them."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank.edit import fidelity
from atlas_engine.bank.packed import LowRankPanel, quantise, truncate_rank
from atlas_engine.bank.panels import DensePanel, to_scaled_half
from atlas_engine.bank.storage import SMALL
from atlas_engine.errors import BankError


@pytest.mark.parametrize(
    ("storage", "cosine"),
    # Rounding to b bits leaves about step/√12 per number: 2^-12 relative for float16, 2^-9 for bfloat16, a
    # 127th of a channel's largest for int8, a 7th of a group's for int4.
    [("float16", 1 - 1e-7), ("bfloat16", 1 - 1e-5), ("int8", 0.9998), ("int4", 0.99), ("low-rank-64", 0.9)],
)
def test_stored_vectors_stay_near_the_originals(bank, storage, cosine):
    small = bank.stored_as(storage)
    assert small.storage == storage
    assert small.nbytes < bank.nbytes
    assert min(found.cosine for found in fidelity(bank, small).values()) >= cosine


def test_an_unknown_storage_is_met_with_the_nearest(bank):
    with pytest.raises(BankError, match="Did you mean 'float16'"):
        bank.stored_as("flaot16")
    with pytest.raises(BankError, match="storage 'low-rank-0'"):
        bank.stored_as("low-rank-0")


def test_float16_keeps_eleven_bits_of_tiny_differences():
    tau = 1e-9 * torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    data, scale = to_scaled_half(tau)
    assert torch.all((data.float() * scale[:, None] - tau).abs() <= tau.abs() * 2**-11 + 1e-9 * 2**-20)
    assert torch.equal(scale.log2(), scale.log2().round())


def test_a_zero_vector_survives_every_format():
    zero = torch.zeros(2, SMALL)
    data, scale = to_scaled_half(zero)
    assert torch.equal(data.float() * scale[:, None], zero)
    for bits in (8, 4):
        assert torch.equal(quantise(zero, block_index=0, cols=128, bits=bits).decode(0, SMALL), zero)


@pytest.mark.parametrize("cols", [96, 128, 192, 202])
def test_int4_unpacks_what_it_packed(cols):
    """Whole numbers from −7 to 7 with the largest in every group have scale 1 and are kept exactly."""
    draw = torch.Generator().manual_seed(1)
    tau = torch.randint(-7, 8, (2, 8 * cols), generator=draw).float()
    tau.view(2, 8, -1)[..., ::16] = 7
    panel = quantise(tau, block_index=0, cols=cols, bits=4)
    assert panel.q.dtype == torch.int8
    assert panel.q.numel() == tau.numel() // 2
    assert torch.equal(panel.decode(0, 8 * cols), tau)
    assert torch.equal(panel.decode(2 * cols, 5 * cols), tau[:, 2 * cols : 5 * cols])


def test_int8_has_one_scale_per_output_channel():
    tau = torch.ones(1, 4 * 64)
    tau.view(4, 64)[2] *= 1000  # a loud channel does not coarsen the quiet ones
    panel = quantise(tau, block_index=0, cols=64, bits=8)
    assert panel.scale.shape == (1, 4, 1)
    assert torch.allclose(panel.decode(0, 256), tau, rtol=1e-6)


def test_a_matrix_of_low_rank_is_kept_exactly():
    draw = torch.Generator().manual_seed(2)
    u, v = torch.randn(2, 200, 4, generator=draw), torch.randn(2, 4, 160, generator=draw)
    tau = torch.bmm(u, v).view(2, -1)
    panel = truncate_rank(tau, block_index=0, cols=160, rank=4)
    assert panel.u.shape == (2, 200, 4)
    assert torch.allclose(panel.decode(0, 200 * 160), tau, atol=1e-4)  # of numbers about 2
    assert torch.equal(panel.u, truncate_rank(tau, block_index=0, cols=160, rank=4).u)


def test_lora_factors_can_be_stored_as_they_are():
    draw = torch.Generator().manual_seed(3)
    up, down = torch.randn(1, 6, 2, generator=draw), torch.randn(1, 2, 5, generator=draw)
    panel = LowRankPanel((0,), up, down)
    assert torch.allclose(panel.decode(0, 30).view(6, 5), up[0] @ down[0])


def _panels():
    draw = torch.Generator().manual_seed(4)
    tau = 1e-4 * torch.randn(5, 64 * 512, generator=draw)
    return {
        "float32": DensePanel((0,), tau),
        "float16": DensePanel((0,), *to_scaled_half(tau)),
        "bfloat16": DensePanel((0,), tau.bfloat16()),
        "int8": quantise(tau, block_index=0, cols=512, bits=8),
        "int4": quantise(tau, block_index=0, cols=512, bits=4),
        "low rank": truncate_rank(tau, block_index=0, cols=512, rank=8),
    }


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("storage", list(_panels()))
def test_both_products_agree_with_the_numbers_stored(storage, runs):
    panel, draw = _panels()[storage], torch.Generator().manual_seed(5)
    tau = panel.decode(0, panel.numel, torch.float64)
    w = torch.randn(runs, 5, 1, generator=draw)
    start, g = 1e-3 * torch.randn(panel.numel, generator=draw), torch.randn(runs, panel.numel, generator=draw)
    theta = torch.empty(runs, panel.numel)
    panel.combine(w, start=start, into=theta)
    delta = w[..., 0].double() @ tau
    # float16 on a CPU rounds weights, gradient and sum to 11 bits; all others sum in float32.
    rough = 2e-3 if storage == "float16" else 1e-5
    assert torch.allclose(theta.double() - start, delta, rtol=0, atol=rough * delta.abs().max())
    wanted = g.double() @ tau.t()
    assert torch.allclose(panel.inner(g)[..., 0].double(), wanted, rtol=0, atol=rough * wanted.abs().max())
