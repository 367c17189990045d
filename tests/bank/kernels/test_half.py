"""float16 through torch's own kernels: right to 11 bits from end to end of the range."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank.kernels import half
from atlas_engine.bank.panels import to_scaled_half


def test_the_fast_float16_products_hold_at_the_ends_of_the_range():
    draw = torch.Generator().manual_seed(6)
    data, scale = to_scaled_half(torch.randn(3, 2**20, generator=draw))
    del scale
    if not half.is_fast(data, torch.zeros(1)):
        pytest.skip("this build of torch has no float16 kernels for this CPU")
    for size in (1e-30, 1e-8, 1.0, 1e8):
        g = size * data[1].float()  # the largest inner product there can be
        wanted = data.double() @ g.double()
        assert torch.allclose(half.inner(data, g).double(), wanted, rtol=0, atol=1e-3 * wanted.abs().max())
        into, start = torch.empty(2**20), torch.zeros(2**20)
        half.combine(data, torch.tensor([size, 0.0, -size]), start=start, into=into)
        delta = size * (data[0].double() - data[2].double())
        assert torch.allclose(into.double(), delta, rtol=0, atol=2e-3 * size)
    half.combine(data, torch.zeros(3), start=start, into=into)
    assert torch.equal(into, start)
