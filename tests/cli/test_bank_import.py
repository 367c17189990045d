"""`atlas bank import`: checkpoints of the bundled model become a bank, and misuse is told before any work."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

from atlas_engine.bank import load_bank
from atlas_engine.cli import main


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
    told = capsys.readouterr()
    rows = [line.split() for line in told.out.splitlines()]
    assert rows[1][:2] == ["cars", "open_clip"]
    assert rows[2][:2] == ["signs", "open_clip"]
    assert f"{out}: 2 vectors" in told.out
    assert load_bank(out).tasks == ("cars", "signs")
    assert main(["bank", "verify", str(out), "--model", "bundled"]) == 0


def test_json_has_every_vector(checkpoints, tmp_path, capsys):
    out = tmp_path / "b.safetensors"
    assert main(["bank", "import", str(checkpoints), "-o", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [it["name"] for it in facts["vectors"]] == ["7", "cars"]
    assert all(it["norm"] > 1 for it in facts["vectors"])
    assert (facts["storage"], facts["model"]) == ("float16", "bundled")
    assert facts["nbytes"] == out.stat().st_size


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["x.pt"], 2, "say where to: -o OUT"),
        (["x.pt", "-o", "no/such/b.safetensors"], 2, "in a folder that exists"),
        (["x.pt", "-o", "b.safetensors"], 1, "'x.pt' is no file, no folder, no hub id"),
        (["x.pt", "-o", "b.safetensors", "--storage", "int3"], 1, "storage 'int3' is not known"),
        (["fredzzhang-atlas"], 1, "unpack the archives"),
    ],
)
def test_what_cannot_be_imported_is_one_line(words, code, sentence, capsys):
    assert main(["bank", "import", *words]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert sentence in told.err


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
