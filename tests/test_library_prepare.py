"""A model is opened with its bank: found, built once and kept, or refused with no file left."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from atlas_engine import library
from atlas_engine.bank import load_bank
from atlas_engine.bank.bank_file import banks_folder, find_bank
from atlas_engine.errors import AtlasError, BankError, HubError, ModelError
from atlas_engine.library import available_models, prepare
from tests.standins import TASKS, stand_in


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def available(tmp_path):
    return stand_in(tmp_path / "hub")


def last(steps):
    *_, step = steps
    return step


def test_the_bundled_model_and_the_three_clips_with_public_checkpoints_are_available():
    models = available_models()
    assert [one.model for one in models] == [
        "bundled",
        "ViT-B-32/openai",
        "ViT-B-16/openai",
        "ViT-L-14/openai",
    ]
    assert [len(one.sources) for one in models] == [0, 20, 20, 20]
    assert len({one.file for one in models[1:]}) == 3


def test_the_bundled_model_comes_with_the_bank_that_ships():
    steps = list(prepare("bundled", cache=False))
    assert [step.phase for step in steps] == ["model", "ready"]
    assert steps[-1].engine.bank_path.parent.name == "bank"
    assert not banks_folder().exists()


def test_a_bank_is_built_from_the_checkpoints_step_by_step(available):
    steps = list(prepare(available, cache=False))
    fields = [(step.phase, step.index, step.of, step.vector) for step in steps]
    assert fields == [
        ("model", 0, 0, ""),
        ("bank", 0, 3, "cars"),
        ("bank", 1, 3, "signs"),
        ("bank", 2, 3, "textures"),
        ("bank", 3, 3, ""),
        ("ready", 0, 0, ""),
    ]
    engine = steps[-1].engine
    assert engine.bank_path == banks_folder() / available.file
    assert engine.bank.tasks == TASKS
    assert engine.bank.storage == library.READY_STORAGE
    assert engine.bank.vector("signs").norm() > 0


def test_what_was_built_once_is_found_again_without_the_checkpoints(available):
    built = last(prepare(available, cache=False)).engine
    bytes_before = built.bank_path.read_bytes()
    for source in available.sources:
        shutil.move(source.where, f"{source.where}.moved")
    again = list(prepare(available, cache=False))
    assert [step.phase for step in again] == ["model", "ready"]
    assert again[-1].engine.bank_path == built.bank_path
    assert built.bank_path.read_bytes() == bytes_before


def test_a_models_bank_is_recognised_by_its_base_not_its_file_name(available, tmp_path):
    other = stand_in(tmp_path / "other", seed=1)
    last(prepare(other, cache=False))
    (banks_folder() / "a-no-bank.safetensors").write_bytes(b"only text")
    session = last(prepare(available, cache=False)).engine
    assert session.bank_path.name == available.file
    shutil.move(session.bank_path, session.bank_path.with_name("z-renamed.safetensors"))
    assert find_bank(dict(session.backbone.visual.named_parameters())).name == "z-renamed.safetensors"


def test_a_given_bank_is_used_instead_of_the_models_own(available, tmp_path):
    built = last(prepare(available, cache=False)).engine
    chosen = tmp_path / "mine.safetensors"
    shutil.copy(built.bank_path, chosen)
    assert last(prepare(available, bank=chosen, cache=False)).engine.bank_path == chosen


def test_a_given_bank_of_another_model_is_refused_at_once(available, tmp_path):
    other = last(prepare(stand_in(tmp_path / "other", seed=1), cache=False)).engine
    with pytest.raises(BankError, match=r"standin-1\.safetensors was made for another model than tiny"):
        last(prepare(available, bank=other.bank_path, cache=False))
    with pytest.raises(BankError, match="nowhere"):
        last(prepare(available, bank=tmp_path / "nowhere.safetensors", cache=False))


def test_a_model_without_public_checkpoints_opens_without_a_bank(available):
    steps = list(prepare(available.model, cache=False))
    assert [step.phase for step in steps] == ["model", "ready"]
    with pytest.raises(AtlasError, match="has no bank of task vectors"):
        _ = steps[-1].engine.bank


def test_a_damaged_checkpoint_leaves_no_bank_and_says_which_file(available):
    path = Path(available.sources[2].where)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=re.escape("textures.pt")):
        last(prepare(available, cache=False))
    assert not list(banks_folder().glob("*"))


def test_stopping_half_way_leaves_no_bank_and_a_second_call_completes_it(available):
    steps = prepare(available, cache=False)
    assert [next(steps).phase for _ in range(3)] == ["model", "bank", "bank"]
    steps.close()
    assert not (banks_folder() / available.file).exists()
    assert load_bank(last(prepare(available, cache=False)).engine.bank_path).tasks == TASKS


@pytest.mark.parametrize("model", ["ViT-B-32/openai", "ViT-L-14-quickgelu/openai"])
def test_a_hub_out_of_reach_is_refused_within_seconds(model, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(HubError, match=r"not on this machine, and the model hub cannot be reached"):
        last(prepare(model, cache=False))


def test_both_names_of_openais_weights_have_the_same_checkpoints():
    short, long = (library._find_model(f"ViT-B-16{end}/openai") for end in ("", "-quickgelu"))
    assert short.sources == long.sources
    assert short.file == "tanganke-b16.safetensors"
    assert library._find_model("ViT-B-16/laion2b_s34b_b88k").sources == ()
