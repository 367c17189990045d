"""Commands with `--on`: the same files from processes as from this one, and a stop that costs little."""

from __future__ import annotations

import json

import pytest
from safetensors import safe_open

from atlas_engine.bank.bank_file import load_bank, save_bank
from atlas_engine.cli import main
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.executors import tiny_tasks
from tests.tiny import tiny_bank

QUICK = {"steps": 6, "batch": 4, "lr": 0.01, "warm-up": 1, "measure-every": 3, "save-every": 2}
TRAIN = ["bank", "train", *(word for flag, n in QUICK.items() for word in (f"--{flag}", str(n)))]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    tiny_tasks.use(monkeypatch)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name, classes in {"one": ("red", "blue"), "two": ("red", "dark_green")}.items():
        write_pictures(root / name, dict.fromkeys(classes, 6))
    return [str(root / "one"), str(root / "two")]


def run(*words):
    return main(list(map(str, words)))


def test_a_bank_from_processes_is_the_one_from_here(sets, tmp_path, capsys):
    for on in ("local", "processes:2"):
        assert run(*TRAIN, sets[0], f"pets={sets[1]}", "-o", tmp_path / on, "--on", on, "--json") == 0
    facts = json.loads(capsys.readouterr().out.split("\n]\n")[0] + "\n]")
    assert [one["name"] for one in facts] == ["one", "pets"]
    assert (tmp_path / "local").read_bytes() == (tmp_path / "processes:2").read_bytes()
    assert load_bank(tmp_path / "local").tasks == ("one", "pets")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "processes:2"], (
        "nothing is left over"
    )


def test_several_vectors_go_into_a_bank_and_take_the_places_of_their_names(sets, tmp_path):
    out = tmp_path / "bank"
    bank = tiny_bank(tiny_engine().backbone.visual)
    save_bank(bank.stored_as("int8"), out)
    assert run(*TRAIN, f"task1={sets[0]}", f"new={sets[1]}", "--into", out) == 0
    grown = load_bank(out)
    assert (grown.tasks, grown.storage) == (("task0", "task1", "task2", "new"), "int8")
    assert [info.dataset for info in grown.infos] == ["", "one", "", "two"]


def test_a_folder_that_fails_costs_no_other(sets, tmp_path, capsys, monkeypatch):
    write_pictures(tmp_path / "thin", {"red": 3, "blue": 1})
    words = [*TRAIN, tmp_path / "thin", *sets, "-o", tmp_path / "bank"]
    assert run(*words) == 1
    assert "thin: class 'blue' has 1 image" in capsys.readouterr().err
    assert not (tmp_path / "bank").exists()
    trained = []
    real = tiny_tasks.REAL["train_one"]
    monkeypatch.setitem(
        tiny_tasks.REAL, "train_one", lambda **more: trained.append(more["name"]) or real(**more)
    )
    assert run(*TRAIN, *sets, "-o", tmp_path / "bank") == 0
    assert trained == [], "both were done before"
    assert load_bank(tmp_path / "bank").tasks == ("one", "two")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--name", "x"], "--name is for one DIR. Name several as NAME=DIR."),
        (["--on", "rai"], "Did you mean 'ray'"),
        (["--threads", "0"], "must be a whole number of at least 1"),
    ],
)
def test_words_that_do_not_fit_are_one_sentence(sets, tmp_path, capsys, words, sentence):
    assert run(*TRAIN, *sets, "-o", tmp_path / "bank", *words) != 0
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_two_folders_of_one_name_are_refused(sets, tmp_path, capsys):
    assert run(*TRAIN, sets[0], sets[0], "-o", tmp_path / "bank") == 2
    assert "two folders would both be called 'one'" in capsys.readouterr().err


def test_imported_banks_are_the_same(tmp_path, monkeypatch, capsys):
    backbone = tiny_engine().backbone
    monkeypatch.setattr("atlas_engine.clip.models.open_backbone", lambda *_, **__: backbone)
    bank = tiny_bank(backbone.visual)
    for task in bank.tasks:
        save_bank(bank.select([task]), tmp_path / f"{task}.safetensors")
    files = [tmp_path / f"{task}.safetensors" for task in bank.tasks]
    printed = []
    for words in ([], ["--on", "local"]):
        assert run("bank", "import", *files, "-o", tmp_path / "out", "--storage", "int8", *words) == 0
        printed.append((capsys.readouterr().out, (tmp_path / "out").read_bytes()))
    assert printed[0] == printed[1]


def test_features_have_a_row_and_a_name_for_each_image(sets, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("atlas_engine.jobs.features.feature_tasks.__kwdefaults__", {"chunk": 5})
    out = tmp_path / "features.safetensors"
    assert run("features", sets[0], "-o", out, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    names = (tmp_path / "features.names.txt").read_text().splitlines()
    assert names == [f"{colour}/{n}.png" for colour in ("blue", "red") for n in range(6)]
    assert (facts["images"], facts["skipped"], facts["nbytes"]) == (12, 0, out.stat().st_size)
    engine = tiny_engine()
    with safe_open(out, framework="pt") as file:
        rows = file.get_tensor("features")
        assert file.metadata()["model_fingerprint"] == engine.fingerprint
    expected = engine.features(engine.read_images([f"{sets[0]}/{name}" for name in names]))
    assert (rows - expected).abs().max() < 1e-6, "batches of other sizes sum in another order"


def test_images_that_cannot_be_read_are_left_out_if_asked(sets, tmp_path, capsys):
    write_pictures(tmp_path / "some", {"red": 1, "blue": 1})
    (tmp_path / "some" / "red" / "bad.png").write_bytes(b"no picture")
    out = tmp_path / "features.safetensors"
    assert run("features", tmp_path / "some", "-o", out) == 1
    assert "bad.png" in capsys.readouterr().err
    assert run("features", tmp_path / "some", "-o", out, "--skip-unreadable") == 0
    assert "2 images, 1 left out" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.tasks*"))


# ---- grids of measurements


GRID = ["--methods", "zero-shot,lpp", "--shots", "1,3", "--seeds", "2", "--max-test", "8"]


def rows_of(path):
    rows = json.loads(path.read_text())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_grid_has_the_same_rows_side_by_side_and_measures_none_twice(sets, tmp_path, monkeypatch):
    words = ["eval", "few-shot", *sets, *GRID]
    assert run(*words, "--json", tmp_path / "plain.json", "--threads", "1") == 0
    assert run(*words, "--json", tmp_path / "spread.json", "--on", "processes:2") == 0
    assert rows_of(tmp_path / "spread.json") == rows_of(tmp_path / "plain.json")
    kept = (tmp_path / "spread.json.rows").read_bytes()
    monkeypatch.setitem(tiny_tasks.REAL, "measure_part", None)
    assert run(*words, "--json", tmp_path / "spread.json", "--on", "local") == 0
    assert (tmp_path / "spread.json.rows").read_bytes() == kept


def test_rows_of_a_plain_run_count_for_one_that_is_spread(sets, tmp_path):
    out = tmp_path / "rows.json"
    assert run("eval", "few-shot", *sets, *GRID, "--json", out) == 0
    lines = (tmp_path / "rows.json.rows").read_text().splitlines(keepends=True)
    (tmp_path / "rows.json.rows").write_text("".join(lines[:-3]))
    before = rows_of(out)
    assert run("eval", "few-shot", *sets, *GRID, "--json", out, "--on", "local") == 0
    assert rows_of(out) == before
    assert len((tmp_path / "rows.json.rows").read_text().splitlines()) == len(lines)


def test_other_studies_are_spread_by_the_same_flag(sets, tmp_path):
    words = ["eval", "test-time", *sets, "--methods", "zero-shot", "--sizes", "5", "--seeds", "1"]
    for on in ([], ["--on", "local"]):
        assert run(*words, *on, "--json", tmp_path / f"{len(on)}.json") == 0
    assert rows_of(tmp_path / "0.json") == rows_of(tmp_path / "2.json")


def test_a_mistake_in_a_worker_is_the_sentence_of_the_command(sets, tmp_path, capsys, monkeypatch):
    real = tiny_tasks.REAL["measure_part"]
    monkeypatch.setitem(tiny_tasks.REAL, "measure_part", lambda **more: real(**{**more, "keys": ["other"]}))
    assert run("eval", "few-shot", *sets, *GRID, "--on", "local") == 1
    assert (
        "one, seed 0: a worker found other images or vectors than the command that sent it"
        in capsys.readouterr().err
    )
