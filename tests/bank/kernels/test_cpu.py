"""The products in machine code: equal to float64 sums of what is stored, however it lies, whoever calls."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from atlas_engine.bank.kernels import cpu
from atlas_engine.bank.packed import quantise, truncate_rank
from atlas_engine.bank.panels import DensePanel, Panel, to_scaled_half
from tests.drawn import ROOT

STORAGES = ["float32", "float16", "bfloat16", "int8", "int4"]
EXACT = 2e-6  # float32 sums of up to 32 terms, or of blocks of 2^14, against float64


@pytest.fixture
def numba():
    if not cpu.is_available("float16"):
        pytest.skip("numba is not installed, or this CPU has no instruction for float16")


def drawn(*shape, seed=0, size=1.0):
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def panel_of(storage: str, tau: torch.Tensor, *, cols: int) -> Panel:
    if storage in ("int8", "int4"):
        return quantise(tau, block_index=0, cols=cols, bits=int(storage[3:]))
    return DensePanel((0,), *(to_scaled_half(tau) if storage == "float16" else (tau.to(_dtype(storage)),)))


def _dtype(storage):
    return getattr(torch, storage)


def products(panel: Panel, w, *, start, g):
    """Both products in machine code, whatever the panel's size."""
    stored, into = panel.stored_numbers(), torch.full((len(w), panel.numel), torch.nan)
    assert cpu.can_run(stored, into, min_numel=0)
    cpu.combine(stored, w, start=start, into=into)
    return into, cpu.inner(stored, g)


def assert_right(panel: Panel, *, runs=1, rough=EXACT):
    tau = panel.decode(0, panel.numel, torch.float64)
    w, start = drawn(runs, panel.task_count, seed=1), torch.zeros(panel.numel)
    g = drawn(runs, panel.numel, seed=2)
    theta, inner = products(panel, w, start=start, g=g)
    delta, wanted = w.double() @ tau, g.double() @ tau.t()
    assert torch.allclose(theta.double(), delta, rtol=0, atol=rough * delta.abs().max().item())
    lengths = g.double().norm(dim=1)[:, None] * tau.norm(dim=1)
    assert torch.all((inner.double() - wanted).abs() <= rough * lengths)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("tasks", [1, 2, 8, 9, 32])
def test_products_equal_float64_sums_of_what_is_stored(numba, storage, tasks):
    assert_right(panel_of(storage, drawn(tasks, 40 * 512, size=1e-4), cols=512))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 2), (3, 34), (7, 202), (5, 96), (11, 1538)])
def test_odd_sizes_lose_no_number(numba, storage, rows, cols):
    assert_right(panel_of(storage, drawn(3, rows * cols), cols=cols), runs=2)


@pytest.mark.parametrize("storage", STORAGES)
def test_many_blocks_and_several_runs(numba, storage):
    panel = panel_of(storage, drawn(5, 150 * 768, size=1e-3), cols=768)
    assert_right(panel)
    assert_right(panel, runs=4)


@pytest.mark.parametrize("storage", STORAGES)
def test_machine_code_agrees_with_torch(numba, storage):
    panel = panel_of(storage, drawn(4, 64 * 512, size=1e-3), cols=512)
    w, start, g = drawn(1, 4, seed=1), drawn(panel.numel, seed=2), drawn(1, panel.numel, seed=3)
    theta, inner = products(panel, w, start=start, g=g)
    other = torch.empty_like(theta)
    panel.combine_with_torch(w.unsqueeze(-1), start=start, into=other)
    rough = 2e-3 if storage == "float16" else 1e-5  # torch's float16 is right to 11 bits
    moved = (theta - start).abs().max().item()
    assert torch.allclose(theta, other, rtol=0, atol=rough * moved + 5e-7)  # and an ulp of the base
    wanted = panel.inner_with_torch(g)[..., 0]
    assert torch.allclose(inner, wanted, rtol=0, atol=rough * wanted.abs().max().item())


@pytest.mark.parametrize("storage", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8, 1e30])
def test_magnitudes_at_both_ends_of_the_range(numba, storage, size):
    panel = panel_of(storage, drawn(3, 4096, size=size), cols=64)
    assert_right(panel)
    g = drawn(1, 4096, seed=4, size=1 / size)
    _, inner = products(panel, torch.ones(1, 3), start=torch.zeros(4096), g=g)
    wanted = g.double() @ panel.decode(0, 4096, torch.float64).t()
    assert torch.allclose(inner.double(), wanted, rtol=0, atol=1e-5 * wanted.abs().max().item())


@pytest.mark.parametrize("storage", STORAGES)
def test_zero_weights_give_back_the_start_bit_for_bit(numba, storage):
    panel = panel_of(storage, drawn(9, 33 * 202), cols=202)
    start = drawn(panel.numel, seed=3)
    theta, _ = products(panel, torch.zeros(1, 9), start=start, g=start.view(1, -1))
    assert torch.equal(theta[0].view(torch.int32), start.view(torch.int32))


def test_what_is_not_a_number_is_not_hidden(numba):
    panel = panel_of("float16", drawn(2, 1000), cols=1000)
    g = drawn(1, 1000)
    g[0, 500] = torch.nan
    theta, inner = products(panel, torch.tensor([[1.0, torch.inf]]), start=torch.zeros(1000), g=g)
    assert torch.isnan(inner).all()
    assert not torch.isfinite(theta).any()


def test_rows_may_lie_apart_and_anywhere(numba):
    """θ and ∂L/∂θ are views into larger tensors; past the cache only where the address allows it."""
    panel = panel_of("float16", drawn(3, 2**18 + 7), cols=64)
    n, w = panel.numel, drawn(2, 3, seed=1)
    start, g = drawn(2 * n, seed=2)[::2], drawn(2, n, seed=3)
    stored, wanted = panel.stored_numbers(), torch.empty(2, n)
    panel.combine_with_torch(w.unsqueeze(-1), start=start, into=wanted)
    for offset in (0, 1, 16, 64):
        room = torch.full((2, n + 121), -7.0)
        into = room[:, offset : offset + n]
        cpu.combine(stored, w, start=start, into=into)
        assert torch.allclose(into, wanted, rtol=1e-6, atol=1e-6)
        assert torch.all(room[:, :offset] == -7)
        assert torch.all(room[:, offset + n :] == -7)
        into.copy_(g)
        assert torch.equal(cpu.inner(stored, into), cpu.inner(stored, g))


def test_the_number_of_threads_does_not_change_a_bit(numba):
    panel = panel_of("float16", drawn(3, 2**18), cols=512)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(products(panel, torch.ones(1, 3), start=torch.zeros(2**18), g=drawn(1, 2**18)))
    finally:
        torch.set_num_threads(before)
    for theta, inner in found[1:]:
        assert torch.equal(theta, found[0][0])
        assert torch.equal(inner, found[0][1])


def test_many_callers_at_once_each_get_their_own_answer(numba):
    panel = panel_of("int8", drawn(4, 256 * 512), cols=512)
    start, g = torch.zeros(panel.numel), drawn(1, panel.numel)

    def call(k: int):
        return products(panel, torch.full((1, 4), float(k)), start=start, g=k * g)

    one_theta, one_inner = call(1)
    with ThreadPoolExecutor(6) as pool:
        for k, (theta, inner) in enumerate(pool.map(call, range(24))):
            assert torch.allclose(theta, k * one_theta, rtol=1e-5, atol=1e-5)
            assert torch.allclose(inner, k * one_inner, rtol=1e-5)


def test_it_says_no_to_what_it_cannot_do(numba):
    panel, g = panel_of("float16", drawn(2, 4096), cols=64), drawn(1, 4096)
    stored = panel.stored_numbers()
    assert cpu.can_run(stored, g, min_numel=0)
    assert not cpu.can_run(stored, g)  # too small to be worth it
    assert not cpu.can_run(stored, g.double(), min_numel=0)
    assert not cpu.can_run(stored, drawn(4096, 1).t().expand(2, -1)[:, ::2], min_numel=0)
    assert not cpu.can_run(cpu.StoredNumbers(stored.data[:, ::2], stored.scale), g, min_numel=0)
    assert not cpu.can_run(cpu.StoredNumbers(stored.data.double(), stored.scale), g, min_numel=0)
    assert not cpu.can_run(cpu.StoredNumbers(stored.data.to("meta"), stored.scale), g, min_numel=0)
    assert truncate_rank(drawn(1, 4096), block_index=0, cols=64, rank=4).stored_numbers() is None


_SCRIPT = """
import os, sys, torch
if {without}: sys.modules["numba"] = None
from atlas_engine.bank.kernels import cpu
from atlas_engine.bank.panels import DensePanel, to_scaled_half
torch.set_num_threads(2)
panel = DensePanel((0,), *to_scaled_half(torch.ones(2, 2**19)))
w, start, into = torch.ones(1, 2, 1), torch.ones(2**19), torch.zeros(1, 2**19)
def right():  # by sums of few numbers: after a fork torch's own threads are gone for good
    panel.combine(w, start=start, into=into)
    return into[0, ::1000].sum().item() == 3 * 525 and panel.inner(into).tolist() == [[[3 * 2.0**19]] * 2]
assert cpu.is_available("float16") != {without}
assert right()
if not {without}:
    into.zero_()
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def _runs(script: str) -> bool:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=120).returncode == 0


def test_without_numba_torch_takes_over():
    assert _runs(_SCRIPT.format(without=True))


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="only POSIX systems fork")
def test_a_forked_process_finds_threads_of_its_own(numba):
    assert _runs(_SCRIPT.format(without=False))


# ---- weights per row


def row_products(panel: Panel, w, *, start, g):
    """Both products row by row in machine code, whatever the panel's size."""
    stored, into = panel.stored_numbers(), torch.full((len(w), panel.numel), torch.nan)
    cpu.combine_rows(stored, w, start=start, into=into)
    return into, cpu.inner_rows(stored, g, rows=w.shape[1])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize(("tasks", "rows", "cols"), [(1, 3, 34), (9, 7, 202), (8, 40, 768), (3, 2, 1538)])
def test_products_by_row_equal_float64_sums_of_what_is_stored(numba, storage, runs, tasks, rows, cols):
    panel = panel_of(storage, drawn(tasks, rows * cols, size=1e-3), cols=cols)
    tau = panel.decode(0, panel.numel, torch.float64).view(tasks, rows, cols)
    w, g = drawn(runs, rows, tasks, seed=1), drawn(runs, rows * cols, seed=2)
    theta, inner = row_products(panel, w, start=torch.zeros(rows * cols), g=g)
    delta = torch.einsum("rqt,tqc->rqc", w.double(), tau)
    assert torch.allclose(theta.double(), delta.flatten(1), rtol=0, atol=EXACT * delta.abs().max().item())
    by_row = g.double().view(runs, rows, cols)
    wanted = torch.einsum("rqc,tqc->rqt", by_row, tau)
    lengths = by_row.norm(dim=2)[..., None] * tau.norm(dim=2).t()
    assert torch.all((inner.double() - wanted).abs() <= EXACT * lengths)


@pytest.mark.parametrize("storage", STORAGES)
def test_rows_that_are_parts_of_a_stored_channel_are_right_too(numba, storage):
    """A position embedding (1, rows, cols) is stored as one channel."""
    panel = panel_of(storage, drawn(4, 24 * 96), cols=24 * 96)
    tau = panel.decode(0, panel.numel, torch.float64).view(4, 24, 96)
    w, g = drawn(2, 24, 4, seed=1), drawn(2, 24 * 96, seed=2)
    theta, inner = row_products(panel, w, start=torch.zeros(24 * 96), g=g)
    delta = torch.einsum("rqt,tqc->rqc", w.double(), tau).flatten(1)
    wanted = torch.einsum("rqc,tqc->rqt", g.double().view(2, 24, 96), tau)
    assert torch.allclose(theta.double(), delta, rtol=0, atol=EXACT * delta.abs().max().item())
    assert torch.allclose(inner.double(), wanted, rtol=0, atol=EXACT * 10 * wanted.abs().max().item())


@pytest.mark.parametrize("storage", STORAGES)
def test_runs_together_give_the_bits_of_each_alone(numba, storage):
    panel = panel_of(storage, drawn(9, 30 * 512, size=1e-3), cols=512)
    w, start, g = drawn(3, 30, 9, seed=1), drawn(panel.numel, seed=2), drawn(3, panel.numel, seed=3)
    theta, inner = row_products(panel, w, start=start, g=g)
    for run in range(3):
        own_theta, own_inner = row_products(panel, w[run : run + 1], start=start, g=g[run : run + 1])
        assert torch.equal(theta[run], own_theta[0])
        assert torch.equal(inner[run], own_inner[0])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("runs", [1, 3])
def test_machine_code_by_row_agrees_with_torch(numba, storage, runs):
    panel = panel_of(storage, drawn(4, 64 * 512, size=1e-3), cols=512)
    w, start, g = drawn(runs, 64, 4, seed=1), drawn(panel.numel, seed=2), drawn(runs, panel.numel, seed=3)
    theta, inner = row_products(panel, w, start=start, g=g)
    other = torch.empty_like(theta)
    panel.combine_rows_with_torch(w, start=start, into=other)
    moved = (theta - start).abs().max().item()
    assert torch.allclose(theta, other, rtol=0, atol=1e-5 * moved + 5e-7)  # and an ulp of the base
    wanted = panel.inner_rows_with_torch(g, rows=64)
    assert torch.allclose(inner, wanted, rtol=0, atol=1e-5 * wanted.abs().max().item())


def test_the_number_of_threads_does_not_change_a_bit_of_rows(numba):
    panel = panel_of("int4", drawn(9, 2**18), cols=512)
    w, g = drawn(2, 512, 9, seed=1), drawn(2, 2**18, seed=2)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(row_products(panel, w, start=torch.zeros(2**18), g=g))
    finally:
        torch.set_num_threads(before)
    for theta, inner in found[1:]:
        assert torch.equal(theta, found[0][0])
        assert torch.equal(inner, found[0][1])
