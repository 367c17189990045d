"""Figures are valid XML with every label and number, in colours that can be told apart."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from atlas_engine.views.heatmap import PHONE, Grid, as_text, heat_map

SVG = "{http://www.w3.org/2000/svg}"
GRID = Grid(
    "Gain <points> & more",
    rows=("clothing", 'signs "A"'),
    columns=("trashnet", "dtd10", "photo"),
    values=((1.25, -0.5, 0.0), (None, 2.5, -2.5)),
    about="Four shots.",
)


def drawn(grid):
    return ET.fromstring(heat_map(grid))


def words(root, tag="text"):
    return [element.text for element in root.iter(SVG + tag)]


def fills(root):
    """The colour of each cell, by its tooltip."""
    return {
        group.find(SVG + "title").text: group.find(SVG + "rect").get("fill") for group in root.iter(SVG + "g")
    }


def test_every_label_and_number_is_in_the_figure():
    found = words(drawn(GRID))
    for text in (
        GRID.title,
        GRID.about,
        *GRID.rows,
        *GRID.columns,
        "+1.2",
        "−0.5",
        "+0.0",
        "–",
        "+2.5",
        "−2.5",
    ):
        assert text in found
    assert len(fills(drawn(GRID))) == 6


def test_a_screen_reader_gets_the_same():
    root = drawn(GRID)
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.find(SVG + "title").text == GRID.title
    description = root.find(SVG + "desc").text
    assert description.startswith("Four shots. clothing: trashnet +1.2, dtd10 −0.5, photo +0.0; ")
    assert 'signs "A", dtd10: +2.5' in fills(root)


def test_the_text_alternative_is_a_table_of_the_same_numbers():
    header, first, second = (line.split() for line in as_text(GRID).splitlines())
    assert header == ["trashnet", "dtd10", "photo"]
    assert first == ["clothing", "+1.2", "−0.5", "+0.0"]
    assert second == ["signs", '"A"', "–", "+2.5", "−2.5"]


def test_colours_run_from_orange_over_near_white_to_blue():
    found = fills(drawn(GRID))
    assert found['signs "A", photo: −2.5'] == "#b35806"
    assert found["clothing, photo: +0.0"] == "#f7f7f7"
    assert found['signs "A", dtd10: +2.5'] == "#2166ac"
    half = int(found["clothing, trashnet: +1.2"][1:3], 16)
    assert half == round((0x21 + 0xF7) / 2), "half the largest number has half the colour"


def test_a_limit_fixes_the_scale_and_what_is_beyond_has_the_full_colour():
    far = Grid("t", ("a",), ("x", "y"), ((1.0, 5.0),), limit=1.0)
    assert len(set(fills(drawn(far)).values())) == 1
    assert "+1.0" in words(drawn(far))[-1:]


def test_letters_stand_out_from_their_cell():
    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    many = Grid(
        "t", ("a",), tuple(map(str, range(21))), (tuple(i / 10 - 1 for i in range(21)),), number="+.1f"
    )
    for group in drawn(many).iter(SVG + "g"):
        pair = (
            luminance(group.find(SVG + "rect").get("fill")),
            luminance(group.find(SVG + "text").get("fill")),
        )
        assert (max(pair) + 0.05) / (min(pair) + 0.05) >= 4.5  # WCAG AA for small letters


def test_a_figure_of_eighteen_rows_fits_1280_pixels_with_numbers_that_can_be_read():
    names = tuple(f"task number {i}" for i in range(18))
    root = drawn(Grid("t", names, names, ((-0.55,) * 18,) * 18, number="+.2f"))
    assert root.get("width") == "1280"
    sizes = {
        float(text.get("font-size")) for group in root.iter(SVG + "g") for text in group.iter(SVG + "text")
    }
    assert min(sizes) >= 11
    right = max(
        float(r.get("x")) + float(r.get("width")) for g in root.iter(SVG + "g") for r in g.iter(SVG + "rect")
    )
    assert right <= 1280


def test_a_number_that_rounds_to_zero_has_no_minus():
    assert [GRID.format_value(value) for value in (-0.04, 0.04, 0.0, -0.06)] == [
        "+0.0",
        "+0.0",
        "+0.0",
        "−0.1",
    ]


def test_cells_too_narrow_for_numbers_keep_them_as_tooltips():
    columns = tuple(f"block {i}" for i in range(60))
    root = drawn(Grid("t", ("a",), columns, (tuple(1000.0 + i for i in range(60)),), number=".2f"))
    assert "a, block 59: 1059.00" in fills(root)
    assert "1059.00" not in words(root)[:-5]


def test_the_same_grid_gives_the_same_bytes_and_odd_names_stay_valid():
    odd = Grid("a\x00b\n", ("<b>",), ("]]>",), ((0.0,),))
    assert heat_map(odd) == heat_map(odd)
    assert "<b>" in words(drawn(odd))
    assert words(drawn(odd))[0] == "a\ufffdb"


@pytest.mark.parametrize(
    ("rows", "values", "sentence"),
    [
        (("a",), ((1.0,),), "not 1 rows of 2 columns"),
        (("a", "b"), ((1.0, 2.0),), "not 2 rows"),
        ((), (), "at least one row"),
        (("a",), ((1.0, float("nan")),), "not finite"),
    ],
)
def test_a_grid_that_does_not_fit_its_labels_is_refused(rows, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        Grid("t", rows, ("x", "y"), values)


def test_long_names_are_cut_in_the_figure_and_whole_in_the_tooltips():
    long = "x" * 500
    root = drawn(Grid("t", (long, "海豹" * 100), ("a",), ((1.0,), (2.0,))))
    shown = [text for text in words(root) if text and "…" in text]
    assert shown == ["x" * 31 + "…", "海豹" * 7 + "海…"]  # a wide letter counts as two
    assert f"{long}, a: +1.0" in fills(root)
    assert float(root.get("width")) == 1280


def test_a_long_sentence_is_broken_into_lines_on_a_phone():
    about = (
        "A sentence about this figure that is a good deal longer than a phone is wide, and goes on and on."
    )
    root = ET.fromstring(heat_map(Grid("t", ("a",), ("x",), ((1.0,),), about=about), width=PHONE))
    lines = [text for text in words(root) if text and text in about and len(text) > 1]
    assert len(lines) >= 2
    assert " ".join(lines) == about
    assert max(map(len, lines)) * 7.2 <= PHONE


def test_the_key_of_counts_has_no_number_twice():
    grid = Grid("counts", ("a",), ("b", "c"), ((0.0, 2.0),), number=".0f")
    key = re.findall(r'font-size="11"[^>]*>([^<]+)<', heat_map(grid))
    assert key == ["0", "1", "2"]
