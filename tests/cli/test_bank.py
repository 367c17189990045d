"""`atlas bank list|show|verify|compress|import`: tables, JSON, and exit code 1 when bad."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank, load_bank, save_bank
from atlas_engine.bank.check import check_bank
from atlas_engine.bank.tensor_file import write_tensors
from atlas_engine.bank.vector import VectorInfo, fingerprint
from atlas_engine.cli import main

BASE = {
    "conv1.weight": torch.zeros(64, 3, 8, 8),
    "proj": torch.zeros(256, 128),
    "ln_pre.bias": torch.zeros(64),
}


def vector(name: str, seed: int, base=BASE) -> TaskVector:
    draw = torch.Generator().manual_seed(seed)
    info = VectorInfo(
        dataset=name.upper(), accuracy_before=0.25, accuracy_after=0.5, provenance={"source": "x.pt"}
    )
    tuned = {block: theta + 0.1 * torch.randn(theta.shape, generator=draw) for block, theta in base.items()}
    return TaskVector.between(name, base=base, tuned=tuned, info=info)


@pytest.fixture
def path(tmp_path):
    save_bank(
        TaskVectorBank.from_vectors([vector("cars", 0), vector("signs", 1)]), tmp_path / "b.safetensors"
    )
    return tmp_path / "b.safetensors"


def run(capsys, *words: object) -> tuple[int, str, str]:
    code = main(["bank", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_list_names_what_is_here_and_what_is_public(path, capsys):
    code, printed, _ = run(capsys, "list", path.parent)
    assert code == 0
    assert ["b", "yes", "2", "float32"] in [line[:4] for line in lines(printed)]
    assert ["tanganke-b32", "no", "20"] in [line[:3] for line in lines(printed)]


def test_list_finds_shipped_and_imported_banks(path, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path / "assets"))
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    for place in ("assets/bank/shipped.safetensors", "cache/banks/tanganke-b16.safetensors"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(path.read_bytes())
    (tmp_path / "cache/banks/broken.safetensors").write_bytes(b"broken")
    code, printed, _ = run(capsys, "list", "--json")
    rows = json.loads(printed)
    assert code == 0
    assert [(row["bank"], row["vectors"]) for row in rows[:3]] == [
        ("shipped", 2),
        ("broken", None),
        ("tanganke-b16", 2),
    ]
    assert "is not a bank file" in rows[1]["about"]
    assert {row["bank"]: row["here"] for row in rows[3:]}["tanganke-b16"] is True
    assert {row["bank"]: row["model"] for row in rows[3:]}["tanganke-l14"] == "ViT-L-14-quickgelu/openai"


def test_list_of_a_place_that_is_not_there_is_misuse(capsys):
    code, _, error = run(capsys, "list", "nowhere")
    assert code == 2
    assert "nowhere does not exist" in error


def test_show_prints_what_each_vector_was_made_from(path, capsys):
    code, printed, _ = run(capsys, "show", path)
    shown = lines(printed)
    norm = vector("cars", 0).norm()
    assert code == 0
    assert ["storage", "float32"] in shown
    assert ["base", fingerprint(BASE)] in shown
    assert ["cars", "CARS", "25", "50", f"{norm:.4g}", "x.pt"] in shown


def test_show_as_json_has_every_fact(path, capsys):
    _, printed, _ = run(capsys, "show", path, "--json")
    shown = json.loads(printed)
    assert shown["nbytes"] == path.stat().st_size
    assert shown["parameters"] == sum(theta.numel() for theta in BASE.values())
    assert shown["nbytes_per_vector"] == 4 * shown["parameters"]
    assert shown["vectors"][1]["name"] == "signs"
    assert shown["vectors"][1]["norm"] == pytest.approx(vector("signs", 1).norm())
    assert shown["vectors"][1]["digest"] == load_bank(path).infos[1].digest


def test_show_of_what_is_no_bank_is_one_line(tmp_path, capsys):
    (tmp_path / "b.safetensors").write_bytes(b"GIF89a")
    code, printed, error = run(capsys, "show", tmp_path / "b.safetensors")
    assert (code, printed, error.count("\n")) == (1, "", 1)
    assert "is not a bank file" in error


def test_verify_finds_a_sound_bank_sound(path, capsys):
    code, printed, _ = run(capsys, "verify", path)
    assert code == 0
    assert [line[:2] for line in lines(printed)[1:]] == [
        ["file", "yes"],
        ["checksums", "yes"],
        ["numbers", "yes"],
    ]


@pytest.mark.parametrize(
    ("harm", "check", "words"),
    [
        (lambda data: data[: len(data) // 2], "file", "is damaged: it has"),
        (lambda data: data[:-20] + bytes(20), "checksums", "does not match its checksum"),
        (lambda data: data.replace(b"signs", b"sings", 1), "file", "its manifest was altered"),
        (lambda data: b"PK" + data, "file", "is not a bank file"),
    ],
    ids=["truncated", "zeroed", "altered", "foreign"],
)
def test_verify_finds_every_harm_and_exits_with_1(path, capsys, harm, check, words):
    path.write_bytes(harm(path.read_bytes()))
    code, printed, _ = run(capsys, "verify", path, "--json")
    found = json.loads(printed)
    assert (code, found["ok"]) == (1, False)
    assert found["checks"][-1]["name"] == check
    assert words in found["checks"][-1]["detail"]


def test_verify_finds_numbers_that_are_none(tmp_path, capsys):
    wild = torch.zeros(1, 4)
    wild[0, 2] = torch.nan
    task = {"name": "cars", "dataset": "", "accuracy_before": None, "accuracy_after": None}
    manifest = {"base": "0" * 64, "storage": "float32", "blocks": [["ln_pre.bias", [4]]]}
    manifest["tasks"] = [task | {"centroid": [], "provenance": {}, "digest": ""}]
    path = tmp_path / "wild.safetensors"
    write_tensors(path, {"ln_pre.bias": wild}, manifest=manifest, format_name="atlas-bank-1")
    code, printed, _ = run(capsys, "verify", path)
    assert code == 1
    assert "NaN or infinity in 1, the first cars: ln_pre.bias" in printed
    assert run(capsys, "show", path, "--json")[0] == 0


def test_verify_compares_the_base_with_a_model(path, tmp_path, capsys, engine):
    code, printed, _ = run(capsys, "verify", path, "--model", "bundled")
    assert code == 1
    assert lines(printed)[-1][:2] == ["base", "no"]
    theta0 = {name: weights.detach() for name, weights in engine.backbone.visual.named_parameters()}
    bank = TaskVectorBank.from_vectors([vector("a", 0, theta0), vector("b", 1, theta0)], storage="int8")
    save_bank(bank, tmp_path / "fits.safetensors")
    code, printed, _ = run(capsys, "verify", tmp_path / "fits.safetensors", "--model", "bundled")
    assert code == 0, printed
    assert lines(printed)[-1][:2] == ["base", "yes"]
    first = next(iter(theta0))
    moved = theta0 | {first: theta0[first] + 1}
    *_, last = check_bank(tmp_path / "fits.safetensors", base=moved)
    assert (last.name, last.good) == ("base", False)
    assert last.detail.startswith(f"made for {fingerprint(theta0)[:12]}, but the model is ")


def test_compress_writes_the_bank_smaller_and_tells_the_loss(path, tmp_path, capsys):
    small = tmp_path / "small.safetensors"
    code, printed, _ = run(capsys, "compress", path, "--storage", "int8", "-o", small, "--json")
    facts = json.loads(printed)
    assert code == 0
    assert load_bank(small).storage == "int8"
    assert facts["nbytes"] == small.stat().st_size < 0.4 * facts["nbytes_before"]
    assert [it["name"] for it in facts["vectors"]] == ["cars", "signs"]
    assert all(it["cosine"] > 0.999 and 0 < it["relative_error"] < 0.02 for it in facts["vectors"])
    code, printed, _ = run(capsys, "compress", path, "--storage", "int4", "-o", small)
    assert code == 0
    assert lines(printed)[0] == ["vector", "cosine", "error", "%"]
    assert load_bank(small).storage == "int4"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--storage", "int9", "-o", "x.safetensors"], 1, "storage 'int9' is not known. Did you mean 'int"),
        (["--storage", "int8", "-o", "no/such/x.safetensors"], 2, "in a folder that exists"),
        (["--storage", "int8"], 2, "Missing option '-o' / '--output'"),
    ],
)
def test_compress_refuses_before_it_works(path, capsys, words, code, sentence):
    found, printed, error = run(capsys, "compress", path, *words)
    assert (found, printed) == (code, "")
    assert sentence in error


# ---- import


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, engine):
    """Two towers near the bundled one: a state dict in a wrapping, and one with prefixes."""
    folder = tmp_path_factory.mktemp("runs")
    draw = torch.Generator().manual_seed(0)
    state = engine.backbone.visual.state_dict()

    def tuned(prefix: str):
        return {
            f"{prefix}{name}": t + 0.01 * torch.randn(t.shape, generator=draw) if t.is_floating_point() else t
            for name, t in state.items()
        }

    torch.save({"epoch": 1, "state_dict": tuned("module.visual.")}, folder / "cars.pt")
    torch.save(tuned(""), folder / "7.pt")
    return folder


def test_files_become_a_bank_of_the_bundled_model(checkpoints, tmp_path, capsys):
    out = tmp_path / "b.safetensors"
    words = [
        str(checkpoints / "cars.pt"),
        f"signs={checkpoints / '7.pt'}",
        "--storage",
        "int8",
        "-o",
        str(out),
    ]
    assert main(["bank", "import", *words]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert rows[1][:2] == ["cars", "open_clip"]
    assert rows[2][:2] == ["signs", "open_clip"]
    assert f"{out}: 2 vectors" in printed.out
    assert load_bank(out).tasks == ("cars", "signs")
    assert main(["bank", "verify", str(out), "--model", "bundled"]) == 0


def test_import_as_json_has_every_vector(checkpoints, tmp_path, capsys):
    out = tmp_path / "b.safetensors"
    assert main(["bank", "import", str(checkpoints), "-o", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [it["name"] for it in facts["vectors"]] == ["7", "cars"]
    assert all(it["norm"] > 1 for it in facts["vectors"])
    assert (facts["storage"], facts["model"]) == ("float16", "bundled")
    assert facts["nbytes"] == out.stat().st_size
    assert main(["bank", "import", str(checkpoints), "-o", str(out), "--kind", "linear"]) == 0
    assert load_bank(out).kind == "linear"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["x.pt"], 2, "say where to: -o OUT"),
        (["x.pt", "-o", "b.safetensors", "--kind", "linaer"], 1, "Did you mean 'linear'"),
        (["x.pt", "-o", "no/such/b.safetensors"], 2, "in a folder that exists"),
        (["x.pt", "-o", "b.safetensors"], 1, "'x.pt' is no file, no folder, no hub id"),
        (["x.pt", "-o", "b.safetensors", "--storage", "int3"], 1, "storage 'int3' is not known"),
        (["fredzzhang-atlas"], 1, "unpack the archives"),
    ],
)
def test_what_cannot_be_imported_is_one_line(words, code, sentence, capsys):
    assert main(["bank", "import", *words]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_a_hostile_file_is_one_line_and_leaves_no_bank(tmp_path, capsys):
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return mark.touch, ()

    (tmp_path / "w.pt").write_bytes(b"".join(pickle.dumps(it, 2) for it in (0x1950A86A20F9469CFC6C, 1001)))
    with (tmp_path / "w.pt").open("ab") as file:
        file.write(pickle.dumps({"little_endian": True}, 2) + pickle.dumps(Trap(), 2))
    assert main(["bank", "import", str(tmp_path / "w.pt"), "-o", str(tmp_path / "b.safetensors")]) == 1
    assert "none of it was run" in capsys.readouterr().err
    assert not mark.exists()
    assert not (tmp_path / "b.safetensors").exists()


# ---- atlas bank plan


def test_plan_prints_the_arithmetic_of_the_bundled_model(capsys):
    assert main(["bank", "plan", "--memory-limit", "2000"]) == 0
    printed = capsys.readouterr().out
    for word in ("base weights", "composed weights", "19 vectors", "fits", "5 of 5 trainings at once"):
        assert word in printed


def test_a_small_limit_plans_fewer_folds_at_once(capsys):
    assert main(["bank", "plan", "--vectors", "20", "--storage", "int4", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    limit = str((whole["nbytes"] - 1000) / 2**20)
    words = ["bank", "plan", "--vectors", "20", "--storage", "int4", "--memory-limit", limit, "--json"]
    assert main(words) == 0
    smaller = json.loads(capsys.readouterr().out)
    assert (whole["runs_at_once"], smaller["runs_at_once"]) == (5, 4)
    assert smaller["chosen"] == [20, "int4"]
