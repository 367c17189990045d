"""The GPU products, which Triton's interpreter runs on the CPU in a process of its own.

They equal float64 sums of what is stored, and torch's products; and they compile for a GPU that is not here.
"""

from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest
import torch

from atlas_engine.bank.kernels import cpu, gpu
from atlas_engine.bank.packed import quantise
from atlas_engine.bank.panels import DensePanel, Panel, to_scaled_half
from tests.drawn import ROOT

STORAGES = ["float32", "float16", "bfloat16", "int8", "int4"]
EXACT = 2e-6  # float32 sums of up to 20 terms, or of programs of 2048, against float64
CPU = torch.device("cpu")

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed (requirements-dev.txt)"
)


@pytest.fixture(scope="module")
def interpreter():
    """Calls functions of this file in a process that runs Triton's interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield lambda function, *args, **settings: pool.submit(function, *args, **settings).result()


# ---- what runs in that process, and what it finds


@dataclass(frozen=True)
class Errors:
    """The largest error of each product, relative to the largest that rounding could make."""

    combine: float
    inner: float


@dataclass(frozen=True)
class Drawn:
    """A panel, and random tensors that go with it."""

    panel: Panel
    w: torch.Tensor
    start: torch.Tensor
    g: torch.Tensor


def draw(storage: str, *, tasks=3, rows=13, cols=384, runs=1, size=1.0) -> Drawn:
    draw = torch.Generator().manual_seed(tasks * cols + runs)
    tau = size * torch.randn(tasks, rows * cols, generator=draw)
    shapes = ((runs, tasks), (rows * cols,), (runs, rows * cols))
    return Drawn(
        panel_of(storage, tau, cols=cols), *(torch.randn(*shape, generator=draw) for shape in shapes)
    )


def panel_of(storage: str, tau: torch.Tensor, *, cols: int) -> Panel:
    if storage in ("int8", "int4"):
        return quantise(tau, block_index=0, cols=cols, bits=int(storage[3:]))
    if storage == "float16":
        return DensePanel((0,), *to_scaled_half(tau))
    return DensePanel((0,), tau.to(getattr(torch, storage)))


def products(drawn: Drawn) -> tuple[torch.Tensor, torch.Tensor]:
    stored, into = drawn.panel.stored_numbers(), torch.full_like(drawn.g, torch.nan)
    gpu.combine(stored, drawn.w, start=drawn.start, into=into)
    return into, gpu.inner(stored, drawn.g)


def errors(storage: str, **sizes) -> Errors:
    drawn = draw(storage, **sizes)
    tau = drawn.panel.decode(0, drawn.panel.numel, torch.float64)
    theta, sums = products(drawn)
    wanted, g = drawn.start + drawn.w.double() @ tau, drawn.g.double()
    lengths = g.norm(dim=1)[:, None] * tau.norm(dim=1)
    return Errors(
        combine=((theta - wanted).abs().max() / wanted.abs().max()).item(),
        inner=((sums - g @ tau.t()).abs() / lengths).max().item(),
    )


def bits(storage: str, **sizes) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in products(draw(storage, **sizes))]


def differs_from_torch(storage: str, **sizes) -> Errors:
    drawn = draw(storage, **sizes)
    theta, sums = products(drawn)
    other = torch.empty_like(theta)
    drawn.panel.combine_with_torch(drawn.w.unsqueeze(-1), start=drawn.start, into=other)
    wanted = drawn.panel.inner_with_torch(drawn.g)[..., 0]
    return Errors(
        combine=((theta - other).abs().max() / other.abs().max()).item(),
        inner=((sums - wanted).abs().max() / wanted.abs().max()).item(),
    )


def in_a_view(storage: str) -> tuple[bool, bool, bool]:
    """Whether views into a larger tensor are written, read, and left alone outside, as if they were alone."""
    drawn = draw(storage, runs=3)
    theta, sums = products(drawn)
    room = torch.full((3, drawn.panel.numel + 121), -7.0)
    into, stored = room[:, 1 : 1 + drawn.panel.numel], drawn.panel.stored_numbers()
    every_other = torch.stack((drawn.start, drawn.start), dim=1)[:, 0]
    gpu.combine(stored, drawn.w, start=every_other, into=into)
    is_written, is_clean = (
        torch.equal(into, theta),
        bool((room[:, 0] == -7).all() and (room[:, -120:] == -7).all()),
    )
    into.copy_(drawn.g)
    return is_written, torch.equal(gpu.inner(stored, into), sums), is_clean


def zero_weights_keep_the_start(storage: str) -> bool:
    drawn = draw(storage, runs=2)
    theta, _ = products(Drawn(drawn.panel, torch.zeros_like(drawn.w), drawn.start, drawn.g))
    return torch.equal(theta.view(torch.int32), drawn.start.view(torch.int32).expand(2, -1))


def shows_what_is_not_a_number() -> bool:
    drawn = draw("int4")
    drawn.g[0, 100], drawn.w[0, 1] = torch.nan, torch.inf
    theta, sums = products(drawn)
    return bool(sums.isnan().all()) and not theta.isfinite().any()


def fault_of(storage: str) -> str | None:
    return gpu.self_check(storage, CPU)


def answers_of_a_panel(storage: str, *, is_wrong: bool) -> tuple[bool, bool, list[str]]:
    """Whether a panel answered with the bits of the kernels, or with those of torch, and what was logged.

    The interpreter's CPU stands for a GPU: panels take the kernels there, if the self-check lets them.
    """
    drawn, lines = draw(storage, runs=2), []
    theta, sums = products(drawn)
    right, handler = gpu.combine, logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger(gpu.__name__).addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "_DEVICE_TYPES", ("cpu",))
        if is_wrong:
            patch.setattr(gpu, "combine", partial(nudge, right))
        gpu._find_fault.cache_clear()
        found, other = torch.empty_like(theta), torch.empty_like(theta)
        for _ in range(2):  # the second time nothing is checked or logged again
            drawn.panel.combine(drawn.w.unsqueeze(-1), start=drawn.start, into=found)
            inner = drawn.panel.inner(drawn.g)
    gpu._find_fault.cache_clear()
    logging.getLogger(gpu.__name__).removeHandler(handler)
    drawn.panel.combine_with_torch(drawn.w.unsqueeze(-1), start=drawn.start, into=other)
    by_kernel = torch.equal(found, theta) and torch.equal(inner[..., 0], sums)
    by_torch = torch.equal(found, other) and torch.equal(inner, drawn.panel.inner_with_torch(drawn.g))
    return by_kernel, by_torch, lines


def nudge(combine, stored, w, *, start, into):
    """A kernel that is wrong in one number of many, by a thousandth."""
    combine(stored, w, start=start, into=into)
    into[-1, 777] += 1e-3 * into.abs().max()


# ---- the kernels


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("tasks", [1, 3, 20])
@pytest.mark.parametrize("runs", [1, 5])
def test_products_equal_float64_sums_of_what_is_stored(interpreter, storage, tasks, runs):
    found = interpreter(errors, storage, tasks=tasks, runs=runs)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 2), (3, 34), (7, 202), (5, 96), (11, 1538)])
def test_odd_sizes_lose_no_number(interpreter, storage, rows, cols):
    found = interpreter(errors, storage, rows=rows, cols=cols, runs=2)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
def test_more_runs_than_a_program_holds(interpreter, storage):
    found = interpreter(errors, storage, runs=9)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
def test_the_kernels_agree_with_torch(interpreter, storage):
    found = interpreter(differs_from_torch, storage, tasks=4, runs=2, size=1e-3)
    assert max(found.combine, found.inner) <= 1e-5  # both sum in float32, in another order


@needs_triton
@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_magnitudes_at_both_ends_of_the_range(interpreter, storage, size):
    found = interpreter(errors, storage, size=size)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
def test_two_calls_give_the_same_bits(interpreter, storage):
    assert interpreter(bits, storage, runs=3) == interpreter(bits, storage, runs=3)


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
def test_zero_weights_give_back_the_start_bit_for_bit(interpreter, storage):
    assert interpreter(zero_weights_keep_the_start, storage)


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
def test_rows_may_lie_apart_and_anywhere(interpreter, storage):
    assert interpreter(in_a_view, storage) == (True, True, True)


@needs_triton
def test_what_is_not_a_number_is_not_hidden(interpreter):
    assert interpreter(shows_what_is_not_a_number)


_COMPILE = """
import re, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from atlas_engine.bank.kernels import triton_loops
def compile(product, floats, data, scale, **sizes):
    kernel = getattr(triton_loops, product)
    integers = len(kernel.arg_names) - 2 - floats - len(sizes)
    types = [data, scale, *["*fp32"] * floats, *["i32"] * integers, *["constexpr"] * len(sizes)]
    source = ASTSource(kernel, signature=dict(zip(kernel.arg_names, types)), constexprs=sizes)
    options = dict(enable_fp_fusion=True)
    return triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options).asm
for data, scale, halves, runs in [("*fp16", "*fp32", 1, 1), ("*i8", "*fp32", 1, 8), ("*i8", "*bf16", 2, 4)]:
    for product, floats in (("combine", 3), ("inner", 2)):
        made = compile(product, floats, data, scale, HALVES=halves, RUNS=runs, ELEMENTS=1024)
        instructions = set(re.findall(r"^\\s*(?:@\\S+\\s+)?([a-z]+)[.]", made["ptx"], re.MULTILINE))
        assert len(made["cubin"]) > 0
        assert {"ld", "st", "fma"} <= instructions, instructions
        assert not {"atom", "red"} & instructions, "sums would depend on which program ends first"
"""


@needs_triton
def test_the_kernels_compile_for_a_gpu_without_atomic_sums(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-W", "error::UserWarning", "-c", _COMPILE]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- the self-check, and who answers


@needs_triton
@pytest.mark.parametrize("storage", gpu.STORAGES)
def test_the_kernels_pass_the_self_check(interpreter, storage):
    assert interpreter(fault_of, storage) is None


@needs_triton
@pytest.mark.parametrize("storage", gpu.STORAGES)
def test_a_panel_takes_the_kernels_that_passed(interpreter, storage):
    by_kernel, _, lines = interpreter(answers_of_a_panel, storage, is_wrong=False)
    assert by_kernel
    assert lines == []


@needs_triton
@pytest.mark.parametrize("storage", gpu.STORAGES)
def test_where_a_kernel_is_wrong_torch_answers_and_one_warning_says_so(interpreter, storage):
    by_kernel, by_torch, lines = interpreter(answers_of_a_panel, storage, is_wrong=True)
    assert by_torch
    assert not by_kernel
    assert lines == [
        f"Triton's {storage} kernels are not used on cpu, torch answers: combine is wrong for 1 run(s)"
    ]


def combine_in_double(stored, w, *, start, into):
    into.copy_(start + w.double() @ gpu._widen(stored))


def inner_in_double(stored, g):
    return (g.double() @ gpu._widen(stored).t()).float()


@pytest.mark.parametrize("storage", gpu.STORAGES)
def test_the_self_check_knows_right_from_wrong(storage):
    right = {"combine": combine_in_double, "inner": inner_in_double}
    assert gpu.self_check(storage, CPU, **right) is None
    wrong = right | {"combine": partial(nudge, combine_in_double)}
    assert gpu.self_check(storage, CPU, **wrong) == "combine is wrong for 1 run(s)"
    wrong = right | {"inner": lambda stored, g: inner_in_double(stored, g.roll(1, dims=1))}
    assert gpu.self_check(storage, CPU, **wrong) == "inner is wrong for 1 run(s)"
    wrong = right | {"inner": lambda stored, g: torch.full((len(g), stored.task_count), torch.nan)}
    assert gpu.self_check(storage, CPU, **wrong) == "inner is wrong for 1 run(s)"
    calls = iter(range(100))
    wrong = right | {"inner": lambda stored, g: inner_in_double(stored, g) * (1 + 1e-6 * next(calls))}
    assert gpu.self_check(storage, CPU, **wrong) == "two calls give different bits"


@pytest.mark.parametrize("storage", gpu.STORAGES)
def test_the_self_check_widens_as_panels_do(storage):
    panel = draw(storage).panel
    assert torch.equal(gpu._widen(panel.stored_numbers()), panel.decode(0, panel.numel, torch.float64))


def test_it_says_no_to_what_it_cannot_do(monkeypatch):
    monkeypatch.setattr(gpu, "_DEVICE_TYPES", ("cpu",))
    monkeypatch.setattr(gpu, "_find_fault", lambda storage, device: None)
    drawn = draw("float16")
    stored, g = drawn.panel.stored_numbers(), drawn.g
    assert gpu.can_run(stored, g)
    assert not gpu.can_run(stored, g.double())
    assert not gpu.can_run(stored, g.to("meta"))
    assert not gpu.can_run(stored, g.repeat(1, 2)[:, ::2])
    assert not gpu.can_run(cpu.StoredNumbers(stored.data[:, ::2], stored.scale), g)
    assert not gpu.can_run(draw("float32").panel.stored_numbers(), g)  # torch reads it where it is


_WITHOUT = """
import sys, torch
from atlas_engine.bank.kernels import gpu
from atlas_engine.bank.panels import DensePanel, to_scaled_half
panel = DensePanel((0,), *to_scaled_half(torch.ones(2, 2**15)))
w, start, into = torch.ones(1, 2, 1), torch.ones(2**15), torch.zeros(1, 2**15)
def right():
    panel.combine(w, start=start, into=into)
    return bool((into == 3).all()) and panel.inner(into).tolist() == [[[3 * 2.0**15]] * 2]
assert right()
assert "triton" not in sys.modules and "atlas_engine.bank.kernels.triton_loops" not in sys.modules
sys.modules["triton"] = None
gpu._DEVICE_TYPES = ("cpu",)
assert gpu.fault("float16", torch.device("cpu")) == "triton is not installed"
assert right()
"""


def test_a_cpu_never_imports_triton_and_without_it_torch_answers():
    command = [sys.executable, "-c", _WITHOUT]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Triton cannot be imported, torch answers in its place") == 1
