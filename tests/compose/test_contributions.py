"""Contributions are ‖λτ‖, add up as squares and follow a scaled λ; cosines have their closed forms."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.contributions import contributions, similarities
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.views.coefficients import similarity_grid
from atlas_engine.views.heatmap import as_text
from tests.tiny import tiny_bank, tiny_clip, tiny_vectors

VISUAL = tiny_clip("vit").visual
BANK = tiny_bank(VISUAL)
ZEROS = {"stem.weight": torch.zeros(2, 2), "head.bias": torch.zeros(2)}
LAYOUTS = [
    Layout(),
    Layout("isotropic"),
    Layout("matrices"),
    Layout(partitions=3, seed=5),
    Layout("matrices", partitions=2),
]


def learned(layout=None, bank=BANK):
    layout = layout or Layout()
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(layout.shape(len(bank), bank.blocks), generator=draw)
    return Coefficients(values, layout, bank.tasks, bank.blocks)


def composed(coefficients, bank=BANK):
    base = {name: weights.detach() for name, weights in VISUAL.named_parameters()}
    return Composer(base, bank, coefficients.layout).compose(coefficients.values)


@pytest.mark.parametrize("storage", ["float32", "float16", "int8", "low-rank-4"])
def test_a_bank_knows_the_length_of_each_vector_in_each_block(storage):
    bank = BANK.stored_as(storage)
    wanted = torch.stack([bank.vectors_of(block).norm(dim=1) for block in bank.blocks], dim=1)
    assert bank.block_norms.shape == (3, len(bank.blocks))
    assert torch.allclose(bank.block_norms, wanted, rtol=1e-5)  # sums of up to 3,072 squares in float32
    assert bank.block_norms is bank.block_norms, "read once"


@pytest.mark.parametrize("names", [["task2", "task0"], ["task1"]], ids=["shares memory", "copies"])
def test_a_selected_bank_has_the_lengths_of_its_own_vectors(names):
    rows = [BANK.tasks.index(name) for name in names]
    assert torch.allclose(BANK.select(names).block_norms, BANK.block_norms[rows])


@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=repr)
def test_a_contribution_is_how_far_a_vector_alone_moves_a_block(layout):
    coefficients = learned(layout)
    moved = contributions(coefficients, BANK)
    base = dict(VISUAL.named_parameters())
    for t, task in enumerate(BANK.tasks):
        alone = composed(coefficients.scaled(tasks={other: 0 for other in BANK.tasks if other != task}))
        for m, block in enumerate(BANK.blocks):
            wanted = (alone[block.name] - base[block.name]).double().norm()
            assert moved.values[t, m].item() == pytest.approx(wanted.item(), rel=1e-3, abs=1e-6)  # θ − θ0


def test_parts_of_a_block_count_by_their_mean_square():
    coefficients = learned(Layout(partitions=3, seed=5))
    moved = contributions(coefficients, BANK)
    block = BANK.blocks.index("transformer.resblocks.0.mlp.c_fc.weight")
    split = coefficients.layout.split(BANK.blocks[block].numel).long()
    exact = (coefficients.table[:, block].index_select(1, split) * BANK.vectors_of(BANK.blocks[block])).norm(
        dim=1
    )
    assert torch.allclose(moved.values[:, block].float(), exact, rtol=0.05)  # 4,096 random numbers in 3 parts


def test_contributions_add_up_as_squares():
    moved = contributions(learned(), BANK)
    whole = moved.values.square().sum()
    for part in (moved.by_layer, moved.by_kind, moved.by_task):
        assert torch.allclose(part.square().sum(), whole)
    layer = [m for m, block in enumerate(BANK.blocks) if block.layer == 2]
    assert torch.allclose(moved.by_layer[:, moved.layers.index(2)], moved.values[:, layer].norm(dim=1))
    norms = [m for m, block in enumerate(BANK.blocks) if block.kind == "norm"]
    assert torch.allclose(moved.by_kind[:, moved.kinds.index("norm")], moved.values[:, norms].norm(dim=1))


def test_the_top_tasks_come_with_shares_that_add_up_to_one():
    strong = learned().scaled(tasks={"task1": 10.0, "task2": 0.0})
    first, second, last = contributions(strong, BANK).top()
    assert (first.task, second.task) == ("task1", "task0")
    assert first.share + second.share == pytest.approx(1)
    assert first.share > 0.9
    assert last == ("task2", 0.0, 0.0)
    assert contributions(strong, BANK).top(1) == [first]


def test_the_base_model_moves_nothing_and_has_no_shares():
    moved = contributions(Coefficients.zeros(BANK.tasks, BANK.blocks), BANK)
    assert [one.share for one in moved.top()] == [0.0, 0.0, 0.0]


def test_contributions_survive_copying_and_json():
    moved = contributions(learned(), BANK)
    again = json.loads(json.dumps(copy.deepcopy(moved).as_dict(), allow_nan=False))
    assert again["blocks"] == list(BANK.blocks.names)
    assert again["layers"] == [0, 1, 2, 3]
    top = again["tasks"][0]
    t = moved.tasks.index(top["task"])
    assert top["by_block"] == moved.values[t].tolist()
    assert top["by_layer"] == moved.by_layer[t].tolist()
    assert top["length"] == max(moved.by_task.tolist())
    assert repr(moved) == f"Contributions(3 tasks × {len(BANK.blocks)} blocks)"


def test_a_larger_bank_serves_coefficients_of_some_of_its_tasks():
    few = BANK.select(["task2", "task0"])
    coefficients = learned(bank=few)
    assert torch.allclose(contributions(coefficients, BANK).values, contributions(coefficients, few).values)


def test_a_wild_coefficient_is_not_too_large_to_be_shown():
    wild = learned().scaled(tasks={"task0": 1e38})
    assert contributions(wild, BANK).top(1)[0].share == pytest.approx(1)


def test_a_bank_that_does_not_fit_is_refused():
    coefficients = learned()
    with pytest.raises(BankError, match="task 'task2' is not known"):
        contributions(coefficients, BANK.without(["task2"]))
    with pytest.raises(BankError, match="the bank that they were learned on"):
        contributions(coefficients, tiny_bank(tiny_clip("resnet").visual))
    broken = tiny_vectors(VISUAL)
    broken[1].blocks["proj"][0, 0] = float("nan")
    with pytest.raises(BankError, match="NaN or infinity"):
        contributions(coefficients, TaskVectorBank.from_vectors(broken))


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_a_task_knocked_out_leaves_the_model_of_the_others(layout):
    coefficients = learned(layout)
    without = composed(coefficients.scaled(tasks={"task1": 0}))
    rest = BANK.without(["task1"])
    fewer = Coefficients(coefficients.values[[0, 2]], layout, rest.tasks, rest.blocks)
    wanted = composed(fewer, rest)
    assert all(torch.allclose(without[name], wanted[name], atol=1e-6) for name in wanted)
    assert coefficients.scaled(tasks={"task1": 0}).layout == layout


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_a_layer_knocked_out_is_the_base_there_and_as_before_elsewhere(layout):
    coefficients = learned(layout)
    before, after = composed(coefficients), composed(coefficients.scaled(layers={2: 0}))
    for block in BANK.blocks:
        wanted = dict(VISUAL.named_parameters())[block.name] if block.layer == 2 else before[block.name]
        assert torch.equal(after[block.name], wanted), block.name


def test_factors_multiply_and_nothing_is_written_in_place():
    coefficients = learned()
    before = coefficients.values.clone()
    scaled = coefficients.scaled(tasks={"task0": 2.0}, layers={1: 0.5})
    at = {layer: next(m for m, b in enumerate(BANK.blocks) if b.layer == layer) for layer in (1, 2)}
    assert torch.equal(scaled.values[0, at[1]], before[0, at[1]])  # 2 × 0.5
    assert torch.equal(scaled.values[0, at[2]], 2 * before[0, at[2]])
    assert torch.equal(scaled.values[1, at[1]], before[1, at[1]] / 2)
    assert torch.equal(coefficients.values, before)
    assert torch.equal(coefficients.scaled().values, before)


@pytest.mark.parametrize(
    ("factors", "sentence"),
    [
        ({"tasks": {"tsk0": 0}}, "task 'tsk0' is not known. Did you mean 'task0'"),
        ({"layers": {9: 0}}, "layer 9 is not known. Known: 0, 1, 2, 3"),
        ({"tasks": {"task0": float("nan")}}, "the factor of task 'task0' is nan"),
        ({"layers": {1: float("inf")}}, "the factor of layer 1 is inf"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=repr)
def test_a_factor_for_what_is_not_there_is_refused(layout, factors, sentence):
    with pytest.raises(ConfigError, match=sentence):
        learned(layout).scaled(**factors)


# ---- similarities


def bank_of(**vectors):
    """A bank from six numbers a task: four of a weight, two of a bias."""
    made = []
    for name, numbers in vectors.items():
        flat = torch.tensor(numbers)
        tuned = {"stem.weight": flat[:4].view(2, 2), "head.bias": flat[4:]}
        made.append(TaskVector.between(name, base=ZEROS, tuned=tuned))
    return TaskVectorBank.from_vectors(made)


@pytest.fixture
def four_vectors():
    """`near` leans 45° to `first`; `back` points against it; `other` has nothing in common with any."""
    return bank_of(
        first=[3.0, 0, 0, 0, 0, 0],
        other=[0, 5.0, 0, 0, 0, 0],
        back=[-2.0, 0, 0, 0, 0, 0],
        near=[1.0, 0, 0, 0, 1.0, 0],
    )


def test_cosines_are_those_of_the_whole_vectors_over_all_blocks(four_vectors):
    half = 0.5**0.5
    wanted = [[1, 0, -1, half], [0, 1, 0, 0], [-1, 0, 1, -half], [half, 0, -half, 1]]
    assert torch.allclose(similarities(four_vectors).values, torch.tensor(wanted, dtype=torch.float64))


def test_a_vector_of_zeros_has_cosine_zero_to_all():
    values = similarities(bank_of(still=[0.0] * 6, moved=[1.0, 2, 3, 4, 5, 6])).values
    assert torch.isfinite(values).all()
    assert values[0].tolist() == [0, 0]


def test_a_part_of_a_bank_has_the_cosines_of_the_whole(four_vectors):
    part = four_vectors.select(["near", "first", "other"])
    assert similarities(part).values[0, 1] == pytest.approx(0.5**0.5)


def test_in_order_each_is_followed_by_the_most_similar_of_those_left():
    bank = bank_of(  # by sums of cosines: near 1.15, first 0.81, other 0.69, back negative; no ties
        first=[3.0, 0, 0, 0, 0, 0],
        other=[0, 5.0, 0, 0, 0, 0],
        back=[-2.0, -1.0, 0, 0, 0, 0],
        near=[1.0, 0.2, 0, 0, 1.0, 0],
    )
    ordered = similarities(bank).in_order()
    assert ordered.tasks == ("near", "first", "other", "back")
    assert ordered.values[0, 1] == pytest.approx(1 / 2.04**0.5)
    assert torch.equal(ordered.values, ordered.values.T)


def test_the_grid_names_every_task_twice_and_leaves_its_diagonal_empty(four_vectors):
    grid = similarity_grid(similarities(four_vectors))
    assert grid.rows == grid.columns
    assert all(grid.values[place][place] is None for place in range(len(grid.rows)))
    assert "+0.71" in as_text(grid)
