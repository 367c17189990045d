"""Tables of shares, domains, pairs and numbers of coefficients, by numbers worked out by hand."""

from __future__ import annotations

import pytest

from studies.dimension import RANDOM, VECTORS, DimensionRow, ahead, dimension_tables
from studies.disentangle import PairRow, error_grid, pair_tables
from studies.peft import PeftRow, peft_grid, peft_tables
from studies.transfer import TransferRow, transfer_grid, transfer_tables


def peft(dataset, way, K, percent, seed, accuracy):
    return PeftRow(dataset, way, K, 100 * max(K, 1), percent, 4 * percent, seed, accuracy, 0.4, 50, 1.0)


PEFT = [
    peft(dataset, way, K, percent, seed, base + 0.1 * seed + (0.2 if dataset == "pets" else 0.0))
    for dataset in ("pets", "plants")
    for seed in (0, 1)
    for percent in (10, 100)
    for way, K, base in (
        ("standard", 1, 0.3),
        ("standard", 20, 0.3 if percent == 10 else 0.4),
        ("LoRA", 1, 0.2),
        ("LoRA", 20, 0.3),
        ("fine-tuning", 0, 0.5),
    )
]


def test_shares_are_columns_and_ways_are_rows_with_their_parameters():
    first, rises, pets, plants = peft_tables(PEFT)
    assert first.title == "Accuracy in %, mean over 2 data sets (zero-shot 40.0 ± 0.0)"
    assert first.columns == ("what learns", "parameters", "10 %", "100 %")
    assert first.rows[1] == ("standard × 20", "2,000", "45.0 ± 7.1", "55.0 ± 7.1")
    assert [row[0] for row in first.rows] == [
        *("standard × 1", "standard × 20", "LoRA, as × 1", "LoRA, as × 20", "fine-tuning")
    ]
    assert rises.rows[0] == ("standard", "1 → 20", "+0.0 ± 0.0", "+10.0 ± 0.0"), "on the same sets"
    assert pets.title.startswith("pets: accuracy in %, of 400 training images")
    assert plants.rows[0][2:] == ("35.0 ± 7.1", "35.0 ± 7.1")


def test_the_grid_of_shares_is_above_zero_shot():
    grid = peft_grid(PEFT)
    assert grid.columns == ("10 %", "100 %")
    assert grid.values[1] == pytest.approx((5.0, 15.0))


def test_one_number_of_parts_has_no_rise_and_one_data_set_no_sheet_of_its_own():
    few = [row for row in PEFT if row.partitions in (0, 1) and row.dataset == "pets"]
    assert [sheet.title[:21] for sheet in peft_tables(few)] == ["Accuracy in %, pets ("]


def test_a_folder_with_a_colon_in_its_name_is_another_style_and_no_damage():
    rows = [
        transfer(method, domain, 0.5) for method in ("zero-shot", "lpp") for domain in ("photo", "art:old")
    ]
    line = dict(zip(transfer_tables(rows)[0].columns, transfer_tables(rows)[0].rows[0], strict=True))
    assert (line["other style"], line["damaged"]) == ("+0.0", "–")


def transfer(method, domain, accuracy, seed=0, source="photo"):
    return TransferRow(source, domain, method, 16, seed, accuracy, 70, 1.0, False)


TRANSFER = [
    transfer("zero-shot", "photo", 0.8),
    transfer("zero-shot", "sketch", 0.5),
    transfer("zero-shot", "fog:3", 0.6),
    transfer("lpp", "photo", 0.9),
    transfer("lpp", "sketch", 0.4),
    transfer("lpp", "fog:3", 0.6),
    transfer("atlas", "photo", 0.85),
    transfer("atlas", "sketch", 0.5),
    transfer("atlas", "fog:3", 0.63),
]


def test_what_is_lost_away_is_the_gain_at_home_less_the_gain_away():
    loss, photo = transfer_tables(TRANSFER)
    assert loss.rows == [
        ("lpp", "+10.0", "-10.0", "+0.0", "-5.0", "15.0", "1 of 2"),
        ("atlas", "+5.0", "+0.0", "+3.0", "+1.5", "3.5", "0 of 2"),
    ]
    assert photo.columns == ("method", "photo", "sketch", "fog:3")
    assert photo.rows[2] == ("atlas", "85.0", "50.0", "63.0")


def test_without_zero_shot_there_are_accuracies_alone():
    rows = [row for row in TRANSFER if row.method == "lpp"]
    (photo,) = transfer_tables(rows)
    assert photo.rows == [("lpp", "90.0", "40.0", "60.0")]
    assert transfer_grid(rows).values == ((90.0, 40.0, 60.0),)


def test_zero_shot_alone_has_nothing_to_lose():
    (photo,) = transfer_tables([row for row in TRANSFER if row.method == "zero-shot"])
    assert photo.rows == [("zero-shot", "80.0", "50.0", "60.0")]


def test_the_grid_of_domains_has_home_first_and_gains():
    grid = transfer_grid(TRANSFER)
    assert (grid.rows, grid.columns) == (("lpp", "atlas"), ("photo (home)", "sketch", "fog:3"))
    assert grid.values[0] == pytest.approx((10.0, -10.0, 0.0))


def test_the_spread_is_over_seeds():
    more = [transfer(r.method, r.domain, r.accuracy + (r.method == "lpp") * 0.02, seed=1) for r in TRANSFER]
    loss, _ = transfer_tables([*TRANSFER, *more])
    assert loss.rows[0][1] == "+11.0 ± 1.4"
    assert loss.rows[0][5] == "15.0 ± 0.0", "two points more everywhere lose no more"


PAIRS = [
    PairRow("a", "b", "isotropic", 0, 0.1, 0.2, 0.7, 0.6, 0.3),
    PairRow("a", "b", "anisotropic", 0, 0.05, 0.1, 0.8, 0.8, 0.3),
    PairRow("a", "c", "isotropic", 0, -0.1, 0.4, 0.5, 0.4, 0.3),
    PairRow("a", "c", "anisotropic", 0, 0.0, 0.2, 0.6, 0.6, 0.3),
]


def test_pairs_are_averaged_by_scaling_and_told_one_by_one():
    mean, each = pair_tables(PAIRS)
    assert mean.rows == [
        ("isotropic", "+0.000", "30.0", "60.0", "50.0"),
        ("anisotropic", "+0.025", "15.0", "70.0", "70.0"),
    ]
    assert mean.title.startswith("Two vectors at once, mean over 2 pair(s)")
    assert each.rows[1] == ("a + c", "-0.100", "+0.000", "40.0", "20.0")
    assert error_grid(PAIRS).values[0] == pytest.approx((20.0, 10.0))
    assert pair_tables([]) == []


DIMENSIONS = [
    DimensionRow("a", VECTORS, "× 1", 36, 0, 0.6, 0.4),
    DimensionRow("a", RANDOM, "× 1", 36, 0, 0.5, 0.4),
    DimensionRow("b", VECTORS, "× 1", 34, 0, 0.5, 0.4),
    DimensionRow("b", RANDOM, "× 1", 34, 0, 0.4, 0.4),
    DimensionRow("a", "fine-tuning", "fine-tuning", 900, 0, 0.7, 0.4),
    DimensionRow("b", "fine-tuning", "fine-tuning", 900, 0, 0.7, 0.4),
]


def test_coefficients_are_told_with_their_share_of_what_fine_tuning_gains():
    (sheet,) = dimension_tables(DIMENSIONS)
    assert sheet.rows == [
        ("× 1", "34–36", VECTORS, "60.0", "50.0", "55.0", "50"),
        ("× 1", "34–36", RANDOM, "50.0", "40.0", "45.0", "17"),
        ("fine-tuning", "900", "fine-tuning", "70.0", "70.0", "70.0", "100"),
        ("zero-shot", "0", "–", "40.0", "40.0", "40.0", "0"),
    ]
    assert ahead(DIMENSIONS, "× 1").mean == pytest.approx(0.1)
