"""Coefficients × K and LoRA on shares of a training set: fair, complete, and never measured twice."""

from __future__ import annotations

import dataclasses
import json

import pytest

from atlas_engine.errors import ConfigError, EvalError
from studies.grid import Ledger
from studies.peft import PeftRow, PeftSettings, peft_grid, peft_methods, peft_tables, run_peft
from studies.tower_training import TowerTrainer, without_own_vectors

QUICK = PeftSettings(
    percents=(100, 20), partitions=(1, 4), seeds=1, max_train=18, max_test=12, steps=4, batch=6, share=0.5
)


@pytest.fixture(scope="module")
def banks(bank):
    return {"standard": bank, "rank 16": bank.stored_as("low-rank-16")}


@pytest.fixture(scope="module")
def folders(folder):
    return {"paint": dataclasses.replace(folder, name="paint")}  # so that no vector was made from it


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("peft") / "rows")


@pytest.fixture(scope="module")
def rows(tiny, banks, folders, ledger):
    return [row for row, _ in run(tiny, banks, folders, ledger)]


def run(tiny, banks, folders, ledger, **changes):
    settings = dataclasses.replace(QUICK, **changes)
    return list(run_peft(tiny, banks, folders, settings=settings, ledger=ledger))


def test_there_is_a_row_for_every_method_and_share(rows):
    assert [(row.percent, row.way, row.partitions) for row in rows] == [
        (percent, way, K)
        for percent in (20, 100)
        for way, K in [
            *(("standard", 1), ("standard", 4), ("rank 16", 1), ("rank 16", 4)),
            *(("LoRA", 1), ("LoRA", 4), ("fine-tuning", 0)),
        ]
    ]
    assert len(rows) == QUICK.cells(2)
    assert {row.images for row in rows} == {4, 18}
    assert {row.n_test for row in rows} == {12}
    assert len({row.zero_shot for row in rows}) == 1
    assert all(0 <= row.accuracy <= 1 and row.seconds > 0 for row in rows)


def test_parameters_are_those_that_do_something_and_lora_has_no_more(tiny, bank, rows):
    trainer = TowerTrainer(tiny, QUICK)
    size = {(row.way, row.partitions): row.parameters for row in rows}
    assert size["standard", 1] == 3 * len(trainer.blocks)
    assert size["standard", 4] == 3 * sum(min(4, block.numel) for block in trainer.blocks)
    assert size["fine-tuning", 0] == sum(block.numel for block in trainer.blocks if block.is_matrix)
    smallest = min(sum(_sides(block)) for block in trainer.blocks if block.is_matrix)
    for K in (1, 4):
        assert size["LoRA", K] <= max(size["standard", K], size["LoRA", 1])
        assert size["LoRA", K] >= smallest


def _sides(block):
    return block.shape[0], block.numel // block.shape[0]


def test_all_that_learns_is_in_the_part_of_the_tower_that_is_named(tiny, banks):
    half, whole = (TowerTrainer(tiny, dataclasses.replace(QUICK, share=share)) for share in (0.5, 1.0))
    few, many = (peft_methods(trainer, banks, partitions=(1,)) for trainer in (half, whole))
    assert all(a.parameters < b.parameters for a, b in zip(few, many, strict=True) if a.name != "LoRA")
    assert len(whole.blocks) == len(list(tiny.backbone.visual.named_parameters()))


def test_a_fitting_vector_and_all_weights_gain(tiny, bank, folders):
    found = run(tiny, {"standard": bank}, folders, Ledger(), percents=(100,), partitions=(1,), steps=20)
    accuracy = {row.way: row.accuracy for row, _ in found}
    zero_shot = found[0][0].zero_shot
    assert accuracy["standard"] > zero_shot
    assert accuracy["fine-tuning"] > zero_shot


def test_a_second_run_computes_nothing_and_gives_the_same_rows(
    tiny, banks, folders, ledger, rows, monkeypatch
):
    monkeypatch.setattr(TowerTrainer, "activations_of_views", None)
    again = run(tiny, banks, folders, Ledger(ledger.path))
    assert [row for row, _ in again] == rows
    assert not any(fresh for _, fresh in again)
    (other,) = {row.dataset for row, _ in run(tiny, banks, {"other": folders["paint"]}, Ledger(ledger.path))}
    assert other == "other"


def test_more_shares_or_parts_measure_only_themselves(tiny, banks, folders, ledger, rows):
    found = run(tiny, banks, folders, Ledger(ledger.path), percents=(20, 50), partitions=(1,))
    assert {row.percent for row, fresh in found if fresh} == {50}
    assert [fresh for row, fresh in found if row.percent == 20] == [False] * 4


def test_another_budget_measures_all_again(tiny, banks, folders, ledger, rows):
    found = run(tiny, banks, folders, Ledger(ledger.path), steps=3, percents=(20,), partitions=(1,))
    assert all(fresh for _, fresh in found)


def test_a_vector_made_from_the_folder_is_left_out(bank, folder):
    assert without_own_vectors(bank, folder).tasks == ("noise", "zero")
    with pytest.raises(EvalError, match="every vector of the bank was made from colours"):
        without_own_vectors(bank.select(["colours"]), folder)


def test_settings_are_in_order_and_not_empty():
    assert QUICK.percents == (20, 100)
    assert PeftSettings(partitions=(20, 1, 20)).partitions == (1, 20)
    for wrong, sentence in (({"percents": ()}, "percents is empty"), ({"percents": (0,)}, "1 to 100")):
        with pytest.raises(ConfigError, match=sentence):
            PeftSettings(**wrong)


def test_a_row_is_plain_json(rows):
    assert PeftRow(**json.loads(json.dumps(rows[0].as_dict()))) == rows[0]


# ---- the report, by numbers worked out by hand


def peft_row(dataset, way, K, percent, seed, accuracy):
    return PeftRow(dataset, way, K, 100 * max(K, 1), percent, 4 * percent, seed, accuracy, 0.4, 50, 1.0)


ROWS = [
    peft_row(dataset, way, K, percent, seed, base + 0.1 * seed + (0.2 if dataset == "pets" else 0.0))
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


def test_shares_are_columns_and_methods_are_rows_with_their_parameters():
    first, rises, pets, plants = peft_tables(ROWS)
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
    grid = peft_grid(ROWS)
    assert grid.columns == ("10 %", "100 %")
    assert grid.values[1] == pytest.approx((5.0, 15.0))


def test_one_number_of_parts_has_no_rise_and_one_data_set_no_table_of_its_own():
    few = [row for row in ROWS if row.partitions in (0, 1) and row.dataset == "pets"]
    assert [table.title[:21] for table in peft_tables(few)] == ["Accuracy in %, pets ("]
