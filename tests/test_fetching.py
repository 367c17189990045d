"""A model and its bank made ready: found, built once and kept, or refused in a sentence with nothing left."""

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
def offer(tmp_path):
    return stand_in(tmp_path / "hub")


def last(steps):
    *_, end = steps
    return end


def test_the_bundled_model_and_the_three_clips_with_public_checkpoints_are_offered():
    offered = available_models()
    assert [one.model for one in offered] == [
        "bundled",
        "ViT-B-32/openai",
        "ViT-B-16/openai",
        "ViT-L-14/openai",
    ]
    assert [len(one.sources) for one in offered] == [0, 20, 20, 20]
    assert len({one.file for one in offered[1:]}) == 3


def test_the_bundled_model_comes_with_the_bank_that_ships():
    steps = list(prepare("bundled", cache=False))
    assert [step.phase for step in steps] == ["model", "ready"]
    assert steps[-1].engine.bank_path.parent.name == "bank"
    assert not banks_folder().exists()


def test_a_bank_is_built_from_the_checkpoints_with_each_step_told(offer):
    steps = list(prepare(offer, cache=False))
    told = [(step.phase, step.index, step.of, step.vector) for step in steps]
    assert told == [
        ("model", 0, 0, ""),
        ("bank", 0, 3, "cars"),
        ("bank", 1, 3, "signs"),
        ("bank", 2, 3, "textures"),
        ("bank", 3, 3, ""),
        ("ready", 0, 0, ""),
    ]
    engine = steps[-1].engine
    assert engine.bank_path == banks_folder() / offer.file
    assert engine.bank.tasks == TASKS
    assert engine.bank.storage == library.READY_STORAGE
    assert engine.bank.vector("signs").norm() > 0


def test_what_was_built_once_is_found_again_without_the_checkpoints(offer):
    built = last(prepare(offer, cache=False)).engine
    bytes_before = built.bank_path.read_bytes()
    for source in offer.sources:
        shutil.move(source.where, f"{source.where}.gone")
    again = list(prepare(offer, cache=False))
    assert [step.phase for step in again] == ["model", "ready"]
    assert again[-1].engine.bank_path == built.bank_path
    assert built.bank_path.read_bytes() == bytes_before


def test_a_models_bank_is_told_from_anothers_by_its_weights_not_its_name(offer, tmp_path):
    other = stand_in(tmp_path / "other", seed=1)
    last(prepare(other, cache=False))
    (banks_folder() / "a-no-bank.safetensors").write_bytes(b"only words")
    mine = last(prepare(offer, cache=False)).engine
    assert mine.bank_path.name == offer.file
    shutil.move(mine.bank_path, mine.bank_path.with_name("z-renamed.safetensors"))
    assert find_bank(dict(mine.backbone.visual.named_parameters())).name == "z-renamed.safetensors"


def test_a_named_bank_goes_before_the_models_own(offer, tmp_path):
    built = last(prepare(offer, cache=False)).engine
    chosen = tmp_path / "mine.safetensors"
    shutil.copy(built.bank_path, chosen)
    assert last(prepare(offer, bank=chosen, cache=False)).engine.bank_path == chosen


def test_a_named_bank_of_another_model_is_refused_at_once(offer, tmp_path):
    other = last(prepare(stand_in(tmp_path / "other", seed=1), cache=False)).engine
    with pytest.raises(BankError, match=r"standin-1\.safetensors was made for another model than tiny"):
        last(prepare(offer, bank=other.bank_path, cache=False))
    with pytest.raises(BankError, match="nowhere"):
        last(prepare(offer, bank=tmp_path / "nowhere.safetensors", cache=False))


def test_a_model_that_nothing_public_is_known_of_opens_without_a_bank(offer):
    steps = list(prepare(offer.model, cache=False))
    assert [step.phase for step in steps] == ["model", "ready"]
    with pytest.raises(AtlasError, match="has no bank of task vectors"):
        _ = steps[-1].engine.bank


def test_a_damaged_checkpoint_leaves_no_bank_and_says_which_file(offer):
    path = Path(offer.sources[2].where)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=re.escape("textures.pt")):
        last(prepare(offer, cache=False))
    assert not list(banks_folder().glob("*"))


def test_whoever_stops_half_way_leaves_nothing_and_may_begin_again(offer):
    work = prepare(offer, cache=False)
    assert [next(work).phase for _ in range(3)] == ["model", "bank", "bank"]
    work.close()
    assert not (banks_folder() / offer.file).exists()
    assert load_bank(last(prepare(offer, cache=False)).engine.bank_path).tasks == TASKS


@pytest.mark.parametrize("model", ["ViT-B-32/openai", "ViT-L-14-quickgelu/openai"])
def test_a_hub_out_of_reach_is_told_within_seconds(model, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(HubError, match=r"not on this machine, and the model hub cannot be reached"):
        last(prepare(model, cache=False))


def test_both_spellings_of_openais_weights_lead_to_the_same_checkpoints():
    short, long = (library._offer(f"ViT-B-16{end}/openai") for end in ("", "-quickgelu"))
    assert short.sources == long.sources
    assert short.file == "tanganke-b16.safetensors"
    assert library._offer("ViT-B-16/laion2b_s34b_b88k").sources == ()
