"""Heat maps of coefficients and contributions have the right number in the right cell, at every width."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch

from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.contributions import Contributions
from atlas_engine.errors import ConfigError
from atlas_engine.views.coefficients import heat_grid, kinds_in
from atlas_engine.views.heatmap import PHONE, as_text, heat_map

SVG = "{http://www.w3.org/2000/svg}"
BLOCKS = BlockTable(
    [
        Block("stem.weight", (4, 3, 2, 2), 0, "conv"),
        Block("stem.bias", (4,), 0, "bias"),
        Block("layer1.weight", (4, 4, 1, 1), 1, "conv"),
        Block("norm.weight", (4,), 2, "norm"),
    ]
)
LAM = torch.tensor([[1.0, 3.0, -0.5, 0.0], [0.25, -0.25, 1.5, 2.0]])
COEFFICIENTS = Coefficients(LAM, Layout(), ("cars", "signs"), BLOCKS)
MOVED = Contributions(
    torch.tensor([[3.0, 4.0, 0.5, 0.0], [0.0, 0.0, 12.0, 5.0]]).double(), ("cars", "signs"), BLOCKS
)


def many(tasks, layers):
    blocks = BlockTable([Block(f"b{i}", (2,), i, "norm") for i in range(layers)])
    values = torch.linspace(-1, 1, tasks * layers).view(tasks, layers)
    return Coefficients(values, Layout(), tuple(f"task number {t}" for t in range(tasks)), blocks)


def drawn(text):
    return ET.fromstring(text)


def test_a_cell_of_coefficients_is_the_mean_of_its_blocks():
    grid = heat_grid(COEFFICIENTS)
    assert grid.rows == ("cars", "signs")
    assert grid.columns == ("stem", "1", "2")
    assert grid.values == ((2.0, -0.5, 0.0), (0.0, 1.5, 2.0))
    assert grid.format_value(2.0) == "+2.00"


def test_a_cell_of_contributions_is_the_root_of_the_sum_of_squares():
    grid = heat_grid(MOVED)
    assert grid.values == ((5.0, 0.5, 0.0), (0.0, 12.0, 5.0))
    assert grid.format_value(5.0) == "5.0"
    assert "Length of λτ" in grid.about


def test_blocks_can_be_chosen_and_grouped_by_kind():
    assert kinds_in(COEFFICIENTS) == ("conv", "bias", "norm")
    by_kind = heat_grid(COEFFICIENTS, by="kind")
    assert by_kind.columns == ("conv", "bias", "norm")
    assert by_kind.values == ((0.25, 3.0, 0.0), (0.875, -0.25, 2.0))
    only = heat_grid(COEFFICIENTS, kind="conv")
    assert only.columns == ("stem", "1", "2")
    assert only.values == ((1.0, -0.5, None), (0.25, 1.5, None))
    assert "conv blocks only" in only.about
    assert heat_grid(MOVED, kind="bias").values == ((4.0, None, None), (0.0, None, None))
    assert heat_grid(COEFFICIENTS, by="kind", kind="norm").columns == ("norm",)


@pytest.mark.parametrize(
    ("values", "layout", "wanted"),
    [
        ([2.0, -1.0], Layout("isotropic"), ((2.0, 2.0, 2.0), (-1.0, -1.0, -1.0))),
        ([[1.0, 2.0], [3.0, 4.0]], Layout("matrices"), ((1.0, 2.0, None), (3.0, 4.0, None))),
        (
            [[[1.0, 3.0]] * 4, [[0.0, -1.0]] * 4],
            Layout(partitions=2),
            ((2.0, 2.0, 2.0), (-0.5, -0.5, -0.5)),
        ),
    ],
    ids=["isotropic", "matrices", "x2"],
)
def test_every_layout_has_a_map_and_blocks_that_are_not_free_do_not_count(values, layout, wanted):
    coefficients = Coefficients(torch.tensor(values), layout, ("cars", "signs"), BLOCKS)
    assert heat_grid(coefficients).values == wanted


def test_of_too_many_task_vectors_the_heaviest_are_shown_in_their_order():
    grid = heat_grid(COEFFICIENTS, most=1)
    assert grid.rows == ("cars",)
    assert grid.about.endswith("The 1 heaviest of 2 task vectors.")
    assert len(heat_grid(many(40, 3)).rows) == 25
    rows = heat_grid(many(40, 3), most=4).rows
    assert rows == ("task number 0", "task number 1", "task number 38", "task number 39")


@pytest.mark.parametrize(
    ("largest", "shown"),
    [(0.0, "+0.00"), (0.5, "+0.50"), (0.0123, "+0.012"), (25.0, "+25.0"), (3e38, "+3e+38")],
)
def test_numbers_have_the_digits_that_can_be_read(largest, shown):
    values = torch.zeros(2, 4)
    values[0, 2] = largest
    grid = heat_grid(Coefficients(values, Layout(), ("cars", "signs"), BLOCKS))
    assert grid.format_value(grid.values[0][1]) == shown


def test_an_unknown_column_or_kind_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'layer'"):
        heat_grid(COEFFICIENTS, by="layr")
    with pytest.raises(ConfigError, match="kind of block 'matrix' is not known"):
        heat_grid(COEFFICIENTS, kind="matrix")


def test_the_largest_map_has_numbers_at_a_desk_and_fits_a_phone_in_colours():
    grid = heat_grid(many(25, 20))
    desk, phone = drawn(heat_map(grid)), drawn(heat_map(grid, width=PHONE))
    assert desk.get("width") == "1280"
    assert len(list(desk.iter(SVG + "g"))) == len(list(phone.iter(SVG + "g"))) == 500
    sizes = [
        float(text.get("font-size")) for cell in desk.iter(SVG + "g") for text in cell.iter(SVG + "text")
    ]
    assert len(sizes) == 500
    assert min(sizes) >= 10
    assert float(phone.get("width")) <= 390
    assert not [text for cell in phone.iter(SVG + "g") for text in cell.iter(SVG + "text")]
    assert desk.find(SVG + "desc").text == phone.find(SVG + "desc").text, (
        "the description has the numbers all the same"
    )
    edges = [float(r.get("x", 0)) + float(r.get("width")) for r in phone.iter(SVG + "rect") if r.get("x")]
    assert max(edges) <= float(phone.get("width"))


def test_the_text_alternative_has_the_same_numbers():
    lines = [line.split() for line in as_text(heat_grid(COEFFICIENTS)).splitlines()]
    assert lines == [
        ["stem", "1", "2"],
        ["cars", "+2.00", "−0.50", "+0.00"],
        ["signs", "+0.00", "+1.50", "+2.00"],
    ]
