"""`atlas bank train`, run as a person runs it: on a small model, and once on the bundled one."""

from __future__ import annotations

import json

import pytest

from atlas_engine.bank.bank_file import load_bank, save_bank
from atlas_engine.cli import main
from tests.drawn import write_pictures
from tests.engines import tiny_engine

QUICK = {"steps": 6, "batch": 4, "lr": 0.01, "warm-up": 1, "measure-every": 3, "save-every": 2}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "colours"
    write_pictures(path, {"red": 6, "blue": 6, "dark_green": 6})
    return path


@pytest.fixture
def small(monkeypatch):
    """Every model that is opened is the small one."""
    monkeypatch.setattr("atlas_engine.engine.open", lambda _model: tiny_engine())


def train(*words):
    quick = [word for flag, value in QUICK.items() for word in (f"--{flag}", str(value))]
    return main(["bank", "train", *quick, *map(str, words)])


def test_a_folder_becomes_a_bank_file_of_one_vector(small, photos, tmp_path, capsys):
    out = tmp_path / "colours.safetensors"
    assert train(photos, "--name", "colours", "-o", out) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert all(
        word in header for word in ("vector", "learned from", "held out", "before %", "after %", "norm")
    )
    assert row.split()[:3] == ["colours", "standard", "3"]
    bank = load_bank(out)
    assert (bank.tasks, bank.storage, bank.infos[0].dataset) == (("colours",), "float32", "colours")
    assert [path.name for path in tmp_path.iterdir()] == [out.name], "the state is gone when all is done"


def test_a_bank_takes_one_vector_after_another_and_replaces_by_name(small, photos, tmp_path, capsys):
    out = tmp_path / "bank.safetensors"
    for name, seed in (("one", 0), ("two", 1), ("one", 2)):
        assert train(photos, "--name", name, "--into", out, "--seed", seed, "--json") == 0
    printed = json.loads(capsys.readouterr().out.split("\n}\n")[-2] + "\n}")
    bank = load_bank(out)
    assert bank.tasks == ("one", "two")
    assert bank.infos[0].digest == printed["digest"]
    assert (printed["name"], printed["seed"], printed["file"]) == ("one", "2", str(out))
    assert printed["accuracy_after"] == bank.infos[0].accuracy_after
    assert printed["norm"] == pytest.approx(bank.vector("one").norm())


def test_a_stopped_command_given_again_goes_on(small, photos, tmp_path, monkeypatch, capsys):
    whole, out = tmp_path / "whole.safetensors", tmp_path / "bank.safetensors"
    assert train(photos, "--name", "c", "-o", whole) == 0
    save_bank(load_bank(whole), out)
    before = out.read_bytes()

    def stop_at_five(moment):
        if moment.step and moment.step.index == 5:
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as during:
        during.setattr("atlas_engine.cli.bank_train._note", stop_at_five)
        assert train(photos, "--name", "new", "--into", out) == 130
    assert out.read_bytes() == before
    state = tmp_path / "bank.safetensors.new.training"
    assert state.is_file()
    assert train(photos, "--name", "new", "--into", out, "--seed", "7") == 1
    assert "seed 0, not 7" in capsys.readouterr().err
    assert train(photos, "--name", "new", "--into", out) == 0
    assert not state.exists()
    digests = [info.digest for info in load_bank(out).infos]
    assert digests[0] == digests[1], "the one that was stopped and the one that was not"


def test_restart_forgets_what_was_stopped(small, photos, tmp_path):
    state = tmp_path / "c.safetensors.c.training"
    state.write_text("nothing that can be read")
    assert train(photos, "--name", "c", "-o", tmp_path / "c.safetensors") == 1
    assert train(photos, "--name", "c", "-o", tmp_path / "c.safetensors", "--restart") == 0
    assert not state.exists()


def test_class_names_come_from_a_file(small, photos, tmp_path, capsys):
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"red": "the colour of fire"}))
    assert train(photos, "--name", "c", "-o", tmp_path / "c.safetensors", "--class-names", names) == 0
    for text, sentence in (("{", "cannot be read as JSON"), ("[1]", "must hold folder names")):
        names.write_text(text)
        assert train(photos, "--name", "c", "-o", tmp_path / "d.safetensors", "--class-names", names) == 2
        assert sentence in capsys.readouterr().err
    names.write_text('{"rot": "red"}')
    assert train(photos, "--name", "c", "-o", tmp_path / "d.safetensors", "--class-names", names) == 1
    assert "class folder of colours 'rot' is not known" in capsys.readouterr().err


def test_a_bank_of_another_base_is_refused_before_the_work(
    small, photos, tmp_path, bank_of_another_base, capsys
):
    before = bank_of_another_base.read_bytes()
    assert train(photos, "--name", "c", "--into", bank_of_another_base) == 1
    err = capsys.readouterr().err
    assert "holds vectors of another base model" in err
    assert err.count("\n") == 1
    assert bank_of_another_base.read_bytes() == before


@pytest.fixture
def bank_of_another_base(tmp_path):
    from tests.tiny import tiny_bank, tiny_clip

    save_bank(tiny_bank(tiny_clip("resnet").visual), tmp_path / "other.safetensors")
    return tmp_path / "other.safetensors"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--name", "c"], 2, "say where the vector goes: -o/--output or --into, one of the two."),
        (["--name", "c", "-o", "x.safetensors", "--into", "y.safetensors"], 2, "one of the two"),
        (["--name", "a/b", "-o", "x.safetensors"], 1, "a vector cannot be called 'a/b'"),
        (["--name", "c", "-o", "nowhere/x.safetensors"], 1, "Give a file name in a folder that exists"),
        (["--name", "c", "-o", "x.safetensors", "--storage", "int7"], 1, "storage 'int7' is not known"),
        (["--name", "c", "-o", "x.safetensors", "--kind", "lorra"], 2, "Did you mean 'lora'"),
        (["--name", "c", "-o", "x.safetensors", "--track-pattern", "("], 1, "is no regular expression"),
    ],
)
def test_bad_words_are_one_sentence(small, photos, tmp_path, monkeypatch, capsys, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    assert train(photos, *words) == code
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_one_image_is_one_sentence(small, tmp_path, capsys):
    write_pictures(tmp_path / "set", {"red": 3, "blue": 1})
    assert train(tmp_path / "set", "--name", "c", "-o", tmp_path / "c.safetensors") == 1
    assert "class 'blue' has 1 image, but at least 2 are needed" in capsys.readouterr().err


def test_the_bundled_model_can_be_tuned(photos, tmp_path, capsys):
    words = [photos, "--name", "colours", "-o", tmp_path / "c.safetensors", "--max-per-class", "3", "--json"]
    assert train(*words, "--steps", "2", "--kind", "lora") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "lora"
    assert load_bank(tmp_path / "c.safetensors").vector("colours").norm() > 0
