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
BY_ROWS = [False, True]  # one weight per task, or one per row and task
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

    @property
    def rows(self) -> int:
        """How many rows have weights of their own."""
        return self.w.shape[1]


def draw(storage: str, *, tasks=3, rows=13, cols=384, runs=1, size=1.0, by_rows=False) -> Drawn:
    draw = torch.Generator().manual_seed(tasks * cols + runs)
    tau = size * torch.randn(tasks, rows * cols, generator=draw)
    shapes = ((runs, rows if by_rows else 1, tasks), (rows * cols,), (runs, rows * cols))
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
    gpu.combine_rows(stored, drawn.w, start=drawn.start, into=into)
    return into, gpu.inner_rows(stored, drawn.g, rows=drawn.rows)


def errors(storage: str, **sizes) -> Errors:
    drawn = draw(storage, **sizes)
    decoded = drawn.panel.decode(0, drawn.panel.numel, torch.float64)
    tau, g = (numbers.view(len(numbers), drawn.rows, -1) for numbers in (decoded, drawn.g.double()))
    theta, sums = products(drawn)
    wanted = drawn.start + torch.einsum("rqt,tqc->rqc", drawn.w.double(), tau).flatten(1)
    lengths = g.norm(dim=2)[..., None] * tau.norm(dim=2).t()  # (R rows T)
    return Errors(
        combine=((theta - wanted).abs().max() / wanted.abs().max()).item(),
        inner=((sums - torch.einsum("rqc,tqc->rqt", g, tau)).abs() / lengths).max().item(),
    )


def bits(storage: str, **sizes) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in products(draw(storage, **sizes))]


def differs_from_torch(storage: str, **sizes) -> Errors:
    drawn = draw(storage, **sizes)
    theta, sums = products(drawn)
    other = torch.empty_like(theta)
    drawn.panel.combine_rows_with_torch(drawn.w, start=drawn.start, into=other)
    return _compare(theta, other, sums, drawn.panel.inner_rows_with_torch(drawn.g, rows=drawn.rows))


def differs_from_the_cpu(storage: str, **sizes) -> Errors:
    """The kernels of a GPU against the machine code that a CPU runs."""
    drawn = draw(storage, **sizes)
    theta, sums = products(drawn)
    other, stored = torch.empty_like(theta), drawn.panel.stored_numbers()
    cpu.combine_rows(stored, drawn.w, start=drawn.start, into=other)
    return _compare(theta, other, sums, cpu.inner_rows(stored, drawn.g, rows=drawn.rows))


def _compare(theta: torch.Tensor, other: torch.Tensor, sums: torch.Tensor, wanted: torch.Tensor) -> Errors:
    return Errors(
        combine=((theta - other).abs().max() / other.abs().max()).item(),
        inner=((sums - wanted).abs().max() / wanted.abs().max()).item(),
    )


def in_a_view(storage: str, *, by_rows: bool) -> tuple[bool, bool, bool]:
    """Whether views into a larger tensor are written, read, and left alone outside, as if they were alone."""
    drawn = draw(storage, rows=4, runs=3, by_rows=by_rows)
    theta, sums = products(drawn)
    room = torch.full((3, drawn.panel.numel + 121), -7.0)
    into, stored = room[:, 1 : 1 + drawn.panel.numel], drawn.panel.stored_numbers()
    every_other = torch.stack((drawn.start, drawn.start), dim=1)[:, 0]
    gpu.combine_rows(stored, drawn.w, start=every_other, into=into)
    is_written, is_clean = (
        torch.equal(into, theta),
        bool((room[:, 0] == -7).all() and (room[:, -120:] == -7).all()),
    )
    into.copy_(drawn.g)
    return is_written, torch.equal(gpu.inner_rows(stored, into, rows=drawn.rows), sums), is_clean


def zero_weights_keep_the_start(storage: str) -> bool:
    drawn = draw(storage, runs=2)
    theta, _ = products(Drawn(drawn.panel, torch.zeros_like(drawn.w), drawn.start, drawn.g))
    return torch.equal(theta.view(torch.int32), drawn.start.view(torch.int32).expand(2, -1))


def shows_what_is_not_a_number() -> bool:
    drawn = draw("int4")
    drawn.g[0, 100], drawn.w[0, 0, 1] = torch.nan, torch.inf
    theta, sums = products(drawn)
    return bool(sums.isnan().all()) and not theta.isfinite().any()


def fault_of(storage: str) -> str | None:
    return gpu.self_check(storage, CPU)


def answers_of_a_panel(storage: str, *, is_wrong: bool, by_rows: bool) -> tuple[bool, bool, list[str]]:
    """Whether a panel answered with the bits of the kernels, or with those of torch, and what was logged.

    The interpreter's CPU stands for a GPU: panels take the kernels there, if the self-check lets them.
    """
    drawn, lines = draw(storage, rows=4, runs=2, by_rows=by_rows), []
    theta, sums = products(drawn)
    right, handler = gpu.combine_rows, logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger(gpu.__name__).addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "_DEVICE_TYPES", ("cpu",))
        if is_wrong:
            patch.setattr(gpu, "combine_rows", partial(nudge, right))
        gpu._find_fault.cache_clear()
        found, other = torch.empty_like(theta), torch.empty_like(theta)
        for _ in range(2):  # the second time nothing is checked or logged again
            inner = answer(drawn, found)
    gpu._find_fault.cache_clear()
    logging.getLogger(gpu.__name__).removeHandler(handler)
    with_torch = answer(drawn, other)  # no GPU is here, and the panel is too small for the machine code
    by_kernel = torch.equal(found, theta) and torch.equal(inner, sums)
    by_torch = torch.equal(found, other) and torch.equal(inner, with_torch)
    return by_kernel, by_torch, lines


def answer(drawn: Drawn, into: torch.Tensor) -> torch.Tensor:
    """Both products, as a composer asks a panel for them: with weights per row, or of the whole."""
    if drawn.rows > 1:
        drawn.panel.combine_rows(drawn.w, start=drawn.start, into=into)
        return drawn.panel.inner_rows(drawn.g, rows=drawn.rows)
    drawn.panel.combine(drawn.w.transpose(1, 2), start=drawn.start, into=into)
    return drawn.panel.inner(drawn.g).transpose(1, 2)


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
@pytest.mark.parametrize(("rows", "cols"), [(1, 2), (3, 34), (7, 202), (4, 384), (2, 1538)])
@pytest.mark.parametrize("runs", [1, 5])
def test_each_row_has_weights_and_sums_of_its_own(interpreter, storage, rows, cols, runs):
    found = interpreter(errors, storage, tasks=2, rows=rows, cols=cols, runs=runs, by_rows=True)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("by_rows", BY_ROWS)
def test_more_runs_than_a_program_holds(interpreter, storage, by_rows):
    found = interpreter(errors, storage, rows=4, runs=9, by_rows=by_rows)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("by_rows", BY_ROWS)
def test_the_kernels_agree_with_torch(interpreter, storage, by_rows):
    found = interpreter(differs_from_torch, storage, tasks=4, rows=4, runs=2, size=1e-3, by_rows=by_rows)
    assert max(found.combine, found.inner) <= 1e-5  # both sum in float32, in another order


@needs_triton
@pytest.mark.skipif(not cpu.has_numba(), reason="numba is not installed")
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("by_rows", BY_ROWS)
def test_the_kernels_agree_with_those_of_the_cpu(interpreter, storage, by_rows):
    found = interpreter(differs_from_the_cpu, storage, tasks=5, rows=4, cols=768, runs=2, by_rows=by_rows)
    assert max(found.combine, found.inner) <= 1e-5  # both sum in float32, in another order


@needs_triton
@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_magnitudes_at_both_ends_of_the_range(interpreter, storage, size):
    found = interpreter(errors, storage, size=size)
    assert max(found.combine, found.inner) <= EXACT


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("by_rows", BY_ROWS)
def test_two_calls_give_the_same_bits(interpreter, storage, by_rows):
    first, second = (interpreter(bits, storage, rows=4, runs=3, by_rows=by_rows) for _ in range(2))
    assert first == second


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
def test_zero_weights_give_back_the_start_bit_for_bit(interpreter, storage):
    assert interpreter(zero_weights_keep_the_start, storage)


@needs_triton
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("by_rows", BY_ROWS)
def test_rows_may_lie_apart_and_anywhere(interpreter, storage, by_rows):
    assert interpreter(in_a_view, storage, by_rows=by_rows) == (True, True, True)


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
@pytest.mark.parametrize(
    ("storage", "by_rows"),
    [*((storage, False) for storage in gpu.STORAGES), ("float16", True), ("int4", True)],
)
def test_a_panel_takes_the_kernels_that_passed(interpreter, storage, by_rows):
    by_kernel, _, lines = interpreter(answers_of_a_panel, storage, is_wrong=False, by_rows=by_rows)
    assert by_kernel
    assert lines == []


@needs_triton
@pytest.mark.parametrize("storage", gpu.STORAGES)
@pytest.mark.parametrize("by_rows", BY_ROWS)
def test_where_a_kernel_is_wrong_torch_answers_and_one_warning_says_so(interpreter, storage, by_rows):
    by_kernel, by_torch, lines = interpreter(answers_of_a_panel, storage, is_wrong=True, by_rows=by_rows)
    assert by_torch
    assert not by_kernel
    assert lines == [
        f"Triton's {storage} kernels are not used on cpu, torch answers: "
        "combine is wrong for 1 run(s) and 1 row(s)"
    ]


def combine_in_double(stored, w, *, start, into):
    tau = gpu._widen(stored).view(stored.task_count, w.shape[1], -1)
    into.copy_(start + torch.einsum("rqt,tqc->rqc", w.double(), tau).flatten(1))


def inner_in_double(stored, g, *, rows):
    tau = gpu._widen(stored).view(stored.task_count, rows, -1)
    return torch.einsum("rqc,tqc->rqt", g.double().view(len(g), rows, -1), tau).float()


def mixes_rows(stored, g, *, rows):
    """Right in all, and for one row; wrong for which row has which sum."""
    return inner_in_double(stored, g, rows=rows).roll(1, dims=1)


@pytest.mark.parametrize("storage", gpu.STORAGES)
def test_the_self_check_knows_right_from_wrong(storage):
    right = {"combine_rows": combine_in_double, "inner_rows": inner_in_double}
    assert gpu.self_check(storage, CPU, **right) is None
    wrong = right | {"combine_rows": partial(nudge, combine_in_double)}
    assert gpu.self_check(storage, CPU, **wrong) == "combine is wrong for 1 run(s) and 1 row(s)"
    wrong = right | {"inner_rows": lambda stored, g, rows: inner_in_double(stored, g.roll(1, 1), rows=rows)}
    assert gpu.self_check(storage, CPU, **wrong) == "inner is wrong for 1 run(s) and 1 row(s)"
    wrong = right | {"inner_rows": mixes_rows}
    assert gpu.self_check(storage, CPU, **wrong) == "inner is wrong for 1 run(s) and 6 row(s)"
    wrong = right | {
        "inner_rows": lambda stored, g, rows: torch.full((len(g), rows, stored.task_count), torch.nan)
    }
    assert gpu.self_check(storage, CPU, **wrong) == "inner is wrong for 1 run(s) and 1 row(s)"
    calls = iter(range(100))
    wrong = right | {
        "inner_rows": lambda stored, g, rows: inner_in_double(stored, g, rows=rows) * (1 + 1e-6 * next(calls))
    }
    assert gpu.self_check(storage, CPU, **wrong) == "two calls give different bits for 1 run(s) and 1 row(s)"


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
    packed = draw("int4", rows=12).panel.stored_numbers()
    assert gpu.can_run(packed, g, rows=4)
    assert not gpu.can_run(packed, g, rows=24)  # half a channel: the low halves of its bytes alone


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
