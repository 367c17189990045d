"""Layouts: which coefficients are free, how they spread over blocks, how a gradient comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.errors import BankError, ConfigError

BLOCKS = block_table(
    [
        ("class_embedding", torch.empty(4)),
        ("conv1.weight", torch.empty(4, 3, 2, 2)),
        ("ln_pre.weight", torch.empty(4)),
        ("proj", torch.empty(4, 2)),
    ]
)

LAYOUTS = [
    Layout(),
    Layout("isotropic"),
    Layout("matrices"),
    Layout(partitions=3),
    Layout("matrices", partitions=3),
    Layout(partitions=3, split_by="rows"),
]
SHAPES = [(2, 4), (2,), (2, 2), (2, 4, 3), (2, 2, 3), (2, 4, 3)]


@pytest.mark.parametrize(("layout", "shape"), list(zip(LAYOUTS, SHAPES, strict=True)))
def test_the_free_tensor_has_its_shape_and_starts_where_told(layout, shape):
    assert layout.shape(2, BLOCKS) == shape
    assert torch.equal(layout.initial(2, BLOCKS), torch.zeros(shape))
    assert torch.equal(layout.initial(2, BLOCKS, value=0.3), torch.full(shape, 0.3))


@pytest.mark.parametrize("lead", [(), (5,)])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_reduce_is_the_transpose_of_expand(layout, lead):
    """⟨expand(x), y⟩ = ⟨x, reduce(y)⟩ for all x and y."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(*lead, *layout.shape(2, BLOCKS), generator=draw)
    full = layout.expand(x, BLOCKS)
    assert full.shape == (*lead, 2, 4) + ((3,) if layout.partitions == 3 else ())
    y = torch.randn(full.shape, generator=draw)
    assert torch.allclose((full * y).sum(), (x * layout.reduce(y, BLOCKS)).sum(), rtol=1e-5)


def test_isotropic_is_one_coefficient_everywhere_and_matrices_leaves_the_rest_at_zero():
    assert torch.equal(Layout("isotropic").expand(torch.tensor([1.0, 2.0]), BLOCKS)[1], torch.full((4,), 2.0))
    table = Layout("matrices").expand(torch.ones(2, 2), BLOCKS)
    assert torch.equal(table[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))


@pytest.mark.parametrize(("numel", "parts"), [(100, 1), (100, 3), (99, 3), (5, 8), (1, 2)])
def test_a_split_is_even_and_random_and_that_of_its_seed(numel, parts):
    layout = Layout(partitions=parts, seed=7)
    split = layout.split(numel)
    counts = torch.bincount(split, minlength=parts)
    assert counts.sum() == numel
    assert counts.max() - counts.min() <= 1
    assert torch.equal(split, layout.split(numel))
    if parts > 1 and numel >= 99:
        assert not torch.equal(split, Layout(partitions=parts, seed=8).split(numel))
        assert not torch.equal(split, torch.arange(numel, dtype=torch.int32) % parts)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"granularity": "blok"}, "Did you mean 'block'"),
        ({"partitions": 0}, "partitions=0"),
        ({"split_by": "row"}, "Did you mean 'rows'"),
        ({"granularity": "isotropic", "partitions": 2}, "one coefficient per vector"),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Layout(**wrong)


def test_coefficients_are_read_by_task_and_block():
    values = torch.arange(8.0).view(2, 4)
    coef = Coefficients(values, Layout(), ("cars", "signs"), BLOCKS)
    assert coef["signs", "ln_pre.weight"].item() == 6
    assert torch.equal(coef["cars"], torch.tensor([0.0, 1.0, 2.0, 3.0]))
    with pytest.raises(ConfigError, match="Did you mean 'cars'"):
        coef["car", "proj"]
    with pytest.raises(BankError, match="Did you mean 'proj'"):
        coef["cars", "poj"]


def test_every_layout_can_be_read_over_all_blocks():
    for layout in LAYOUTS:
        coef = Coefficients.zeros(("cars", "signs"), BLOCKS, layout=layout)
        assert coef.table.shape[:2] == (2, 4)
        assert torch.count_nonzero(coef["cars", "proj"]) == 0


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_widened_coefficients_are_the_same_where_they_were_and_zero_elsewhere(layout):
    late = BlockTable([BLOCKS[3], BLOCKS[1]])  # of another order, too
    shape = layout.shape(2, late)
    values = 1 + torch.rand(shape, generator=torch.Generator().manual_seed(0))
    narrow = Coefficients(values, layout, ("cars", "signs"), late)
    wide = narrow.widened(BLOCKS)
    assert (wide.layout, wide.tasks) == (replace(layout, granularity="block"), narrow.tasks)
    assert wide.blocks is BLOCKS
    assert wide.values.shape == wide.layout.shape(2, BLOCKS)
    for task in narrow.tasks:
        for block in BLOCKS:
            wanted = narrow[task, block.name] if block in late else torch.zeros_like(wide[task, block.name])
            assert torch.equal(wide[task, block.name], wanted)


def test_coefficients_are_not_widened_to_a_table_of_another_tower():
    narrow = Coefficients.zeros(("cars",), BLOCKS[2:])
    with pytest.raises(BankError, match=r"block 'proj' is \(4, 2\) here but \(4, 3\)"):
        narrow.widened(BlockTable([*BLOCKS[:3], replace(BLOCKS[3], shape=(4, 3))]))
    with pytest.raises(BankError, match="block 'proj' is not known"):
        narrow.widened(BLOCKS[:3])


def test_rows_are_split_where_entries_would_be_and_a_vector_is_split_alike():
    by_rows, by_entries = (Layout(partitions=3, seed=7, split_by=split) for split in ("rows", "entries"))
    assert [by_entries.unit_count(block) for block in BLOCKS] == [4, 48, 4, 8]
    assert [by_rows.unit_count(block) for block in BLOCKS] == [4, 4, 4, 4]
    for block in BLOCKS:
        split = by_rows.split(by_rows.unit_count(block))
        assert set(split.tolist()) == {0, 1, 2}
        if len(block.shape) == 1:
            assert torch.equal(split, by_entries.split(by_entries.unit_count(block)))


def test_narrowing_takes_back_what_widening_added():
    few = BlockTable([BLOCKS[1], BLOCKS[3]])
    draw = torch.Generator().manual_seed(0)
    for layout in (Layout(), Layout(partitions=3), Layout("isotropic")):
        own = Coefficients(torch.randn(layout.shape(2, few), generator=draw), layout, ("cars", "signs"), few)
        back = own.widened(BLOCKS).narrowed(few)
        assert torch.equal(back.table, own.table)
        assert back.blocks == few
