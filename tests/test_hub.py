"""The hub's own client, against a hub on this machine: fetched, checked, resumed, announced, made a bank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from atlas_engine.bank import load_bank
from atlas_engine.bank.bank_file import banks_folder
from atlas_engine.cli import main
from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS, PublicBank
from atlas_engine.clip.checkpoints.sources import fetch_from_hub, find_sources, nbytes_to_fetch
from atlas_engine.clip.models import open_backbone
from atlas_engine.errors import ModelError
from atlas_engine.files import human_nbytes
from atlas_engine.library import AvailableModel, import_bank, prepare
from tests.drawn import ROOT
from tests.hub_files import ADAPTER, CHECKPOINTS, MODEL, write_repositories
from tests.hub_server import HubServer, environment_for, point_client_at

CPU = torch.device("cpu")
TOWER = "model.safetensors"
ADAPTED = "base_model.model.vision_model.encoder.layers.0.self_attn.q_proj"
WORDS = [f"{task}=hf-hub:{hub_id}" for task, hub_id in CHECKPOINTS.items()]


@pytest.fixture(scope="module")
def repositories(tmp_path_factory) -> Path:
    return write_repositories(tmp_path_factory.mktemp("repositories"))


@pytest.fixture
def hub(repositories, tmp_path, monkeypatch):
    """The hub, and the client of this process pointed at it with empty caches."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "atlas"))
    with HubServer(repositories) as server:
        point_client_at(server.address, tmp_path / "hub", monkeypatch)
        yield server


@pytest.fixture
def available():
    return AvailableModel(
        f"hf-hub:{MODEL}", "four checkpoints", tuple(find_sources(WORDS)), "tiny.safetensors"
    )


def nbytes_of(repositories, *hub_ids):
    """The sizes of all files of repositories, or of one file where the hub id names it."""
    places = [repositories / hub_id for hub_id in hub_ids]
    return sum(
        file.stat().st_size
        for place in places
        for file in (place.rglob("*.*") if place.is_dir() else [place])
    )


def test_a_model_and_its_checkpoints_in_every_format_become_a_bank(hub, repositories, available, tmp_path):
    arrived = []
    steps = list(prepare(available, cache=False, on_bytes=arrived.append))
    assert [step.phase for step in steps] == ["model", "fetch", *["bank"] * 5, "ready"]
    announced = nbytes_of(repositories, MODEL, *CHECKPOINTS.values())
    assert steps[1].nbytes == sum(arrived) == announced
    engine = steps[-1].engine
    assert engine.bank.tasks == tuple(CHECKPOINTS)
    assert [info.accuracy_after for info in engine.bank.infos] == [0.97, None, None, None]
    local = [f"{task}={repositories / hub_id}" for task, hub_id in CHECKPOINTS.items()]
    imported = import_bank(find_sources(local), engine.backbone, tmp_path / "l.safetensors", storage="int4")
    assert [one.layout for one in imported] == ["transformers", "open_clip", "open_clip", "open_clip"]
    from_files = load_bank(tmp_path / "l.safetensors")
    for block in from_files.blocks:
        assert torch.equal(engine.bank.vectors_of(block), from_files.vectors_of(block))


def test_what_was_fetched_is_not_fetched_again_and_opens_without_the_hub(
    hub, available, tmp_path, monkeypatch
):
    list(prepare(available, cache=False))
    hub.requests.clear()
    again = list(prepare(available, cache=False))
    assert [step.phase for step in again] == ["model", "ready"]
    assert not any(method == "GET" for method, _, _ in hub.requests)
    (banks_folder() / available.file).unlink()
    point_client_at("http://127.0.0.1:9", tmp_path / "hub", monkeypatch)  # nothing listens there
    *_, last = prepare(available, cache=False)
    assert last.engine.bank.tasks == tuple(CHECKPOINTS)


def test_sizes_cost_one_request_a_repository_and_fetch_nothing(hub, repositories):
    sources = find_sources([CHECKPOINTS["cars"], CHECKPOINTS["textures"]])
    hub.requests.clear()
    wanted = nbytes_of(repositories, CHECKPOINTS["cars"], CHECKPOINTS["textures"])
    assert nbytes_to_fetch(sources) == wanted
    assert [path for method, path, _ in hub.requests if method == "GET"] == [
        f"/api/models/{source.where}" for source in sources
    ]
    fetch_from_hub(CHECKPOINTS["cars"])
    assert nbytes_to_fetch(sources) == nbytes_of(repositories, CHECKPOINTS["textures"])


# ---- What goes wrong on the way.


@pytest.mark.parametrize(
    ("chunk", "second"),
    [(16_384, "bytes=65536-"), (10_000_000, "")],  # the client writes whole chunks, and asks for the rest
    ids=["resumed", "restarted"],
)
def test_a_cut_connection_is_resumed_after_the_last_whole_chunk(
    hub, repositories, monkeypatch, chunk, second
):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", chunk)
    original = (repositories / CHECKPOINTS["cars"] / TOWER).read_bytes()
    assert 65_536 < len(original) // 2 < 65_536 + 16_384  # where the hub cuts
    arrived = []
    hub.cut(CHECKPOINTS["cars"], TOWER)
    path = fetch_from_hub(CHECKPOINTS["cars"], on_bytes=arrived.append)
    assert path.read_bytes() == original
    assert hub.sent(TOWER) == ["", second]
    assert sum(arrived) == nbytes_of(repositories, CHECKPOINTS["cars"])


def test_a_file_that_is_not_the_announced_one_is_refused_and_deleted(hub, tmp_path):
    hub.announce(CHECKPOINTS["cars"], TOWER, "a" * 64)
    with pytest.raises(
        ModelError, match=r"model\.safetensors of 'lab/.*' \(.* KiB\) arrived with sha256 .* Try"
    ):
        fetch_from_hub(CHECKPOINTS["cars"])
    kept = [
        path.name for path in (tmp_path / "hub").rglob("*") if path.is_file() and path.stat().st_size > 200
    ]
    assert kept == []
    hub.announced.clear()
    assert fetch_from_hub(CHECKPOINTS["cars"]).name == TOWER


def test_a_model_that_is_not_the_announced_one_is_refused_too(hub):
    hub.announce(MODEL, "open_clip_model.safetensors", "a" * 64)
    with pytest.raises(ModelError, match=r"arrived with sha256 .*, but the hub announced aaaaaaaaaaaa…"):
        open_backbone(f"hf-hub:{MODEL}", device=CPU)


def test_a_checkpoint_that_is_refused_leaves_no_bank_and_the_next_try_completes_it(hub, available):
    hub.announce("lab/atlas", "ViT/DigitsVal/finetuned.pt", "b" * 64)
    with pytest.raises(ModelError, match="DigitsVal"):
        list(prepare(available, cache=False))
    assert not (banks_folder() / available.file).exists()
    hub.announced.clear()
    hub.requests.clear()
    *_, last = prepare(available, cache=False)
    assert last.engine.bank.tasks == tuple(CHECKPOINTS)
    assert hub.sent(TOWER) == []
    assert hub.sent("finetuned.pt") == [""]


# ---- The command line.


def atlas_command(hub, home, *words):
    """`atlas …` in a process of its own, which knows this hub by its environment alone."""
    return subprocess.run(
        [sys.executable, "-m", "atlas_engine.cli", *map(str, words)],
        cwd=ROOT,
        env=environment_for(hub.address, home),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_bank_import_says_how_much_is_coming_and_makes_the_bank(hub, repositories, tmp_path):
    out = tmp_path / "b.safetensors"
    words = ("bank", "import", *WORDS, "--model", f"hf-hub:{MODEL}", "-o", out, "--json")
    done = atlas_command(hub, tmp_path / "home", *words)
    assert done.returncode == 0, done.stderr
    size = human_nbytes(nbytes_of(repositories, MODEL, *CHECKPOINTS.values()))
    assert done.stderr.splitlines()[0] == f"atlas: fetching {size} from the model hub, once."
    assert [vector["name"] for vector in json.loads(done.stdout)["vectors"]] == list(CHECKPOINTS)
    assert load_bank(out).tasks == tuple(CHECKPOINTS)
    again = atlas_command(hub, tmp_path / "home", *words)
    assert (again.returncode, again.stderr) == (0, "")


def test_an_adapter_on_the_hub_joins_a_bank(hub, repositories, tmp_path, capsys):
    out = tmp_path / "b.safetensors"
    words = [
        CHECKPOINTS["cars"],
        ADAPTER,
        "--model",
        f"hf-hub:{MODEL}",
        "-o",
        str(out),
        "--storage",
        "float32",
    ]
    assert main(["bank", "import", *words]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[2].split()[:2] == ["kites", "lora"]
    assert "left out of kites: 2 tensors outside the image tower" in printed
    adapter = load_file(repositories / ADAPTER / "adapter_model.safetensors")
    a, b = (adapter[f"{ADAPTED}.lora_{half}.weight"] for half in "AB")
    vector = load_bank(out).vector("kites")
    block = "transformer.resblocks.0.attn.in_proj_weight"
    q, rest = vector.blocks[block].split([32, 64])
    assert torch.allclose(q, 4 / 2 * b @ a, atol=1e-5)  # θ0 + ΔW − θ0 rounds ΔW, which is below 20, once
    assert not rest.any()
    assert not any(change.any() for name, change in vector.blocks.items() if name != block)
    assert main(["bank", "import", *words, "--lora-alpha", "8"]) == 0
    assert torch.allclose(load_bank(out).vector("kites").blocks[block], 2 * vector.blocks[block], atol=1e-5)


def test_prepare_fetches_a_model_and_builds_its_public_bank(hub, repositories, capsys, monkeypatch):
    bank = PublicBank("tiny-public", f"hf-hub:{MODEL}", CHECKPOINTS, "four checkpoints")
    monkeypatch.setitem(PUBLIC_BANKS, bank.name, bank)
    assert main(["prepare", f"hf-hub:{MODEL}", "--json"]) == 0
    printed = capsys.readouterr()
    size = human_nbytes(nbytes_of(repositories, MODEL, *CHECKPOINTS.values()))
    assert printed.err == f"atlas: fetching {size} from the model hub, once.\n"
    assert json.loads(printed.out) == {
        "model": f"hf-hub:{MODEL}",
        "bank": str(banks_folder() / "tiny-public.safetensors"),
        "vectors": list(CHECKPOINTS),
    }
    assert main(["prepare", f"hf-hub:{MODEL}"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines()[-1].split() == ["vectors", "4"]


def test_prepare_of_what_the_hub_does_not_have_is_one_line(hub, capsys):
    assert main(["prepare", "hf-hub:lab/nothing"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "'lab/nothing' cannot be fetched" in printed.err
