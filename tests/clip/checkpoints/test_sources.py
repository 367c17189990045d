"""Checkpoints are found in files, folders, public banks and on the hub, and fetched once."""

from __future__ import annotations

import time

import pytest

from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS
from atlas_engine.clip.checkpoints.sources import CheckpointSource, fetch_from_hub, find_sources
from atlas_engine.errors import HubError, ModelError
from tests.hub_server import HubServer, point_client_at


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_a_folder_gives_every_checkpoint_below_it_under_the_name_of_its_task(tmp_path):
    touch(
        tmp_path,
        "ViT-B-32/CarsVal/finetuned.pt",
        "ViT-B-32/CarsVal/zeroshot.pt",
        "ViT-B-32/DTDVal/finetuned.pt",
        "ViT-B-32/head_CarsVal.pt",
        "ViT-B-32/ft_accuracies.json",
        "clip-vit-base-patch32_sun397/model.safetensors",
        "mine.safetensors",
    )
    found = find_sources([tmp_path])
    assert [source.name for source in found] == ["Cars", "DTD", "sun397", "mine"]
    assert not any(source.is_remote for source in found)


def test_files_can_be_named(tmp_path):
    touch(tmp_path, "7.pt")
    assert find_sources([f"signs={tmp_path / '7.pt'}"]) == [CheckpointSource("signs", str(tmp_path / "7.pt"))]
    assert find_sources(["cars=owner/name"]) == [CheckpointSource("cars", "owner/name", is_remote=True)]


def test_hub_ids_are_distinguished_from_paths():
    assert find_sources(["tanganke/clip-vit-base-patch16_rendered-sst2"]) == [
        CheckpointSource("rendered-sst2", "tanganke/clip-vit-base-patch16_rendered-sst2", is_remote=True)
    ]
    assert find_sources(["hf-hub:owner/name/ViT-B-32/SUN397Val/nonlinear_finetuned.pt"]) == [
        CheckpointSource("SUN397", "owner/name/ViT-B-32/SUN397Val/nonlinear_finetuned.pt", is_remote=True)
    ]


@pytest.mark.parametrize("word", ["runs/cars.pt", "./nowhere", "nowhere", "/no/such/folder", "tanganke-b23"])
def test_a_word_that_names_nothing_is_refused_with_what_would_do(word):
    with pytest.raises(ModelError, match=r"no file, no folder, no hub id .* tanganke-b32"):
        find_sources([word])


def test_two_checkpoints_of_one_name_an_empty_folder_and_no_word_are_refused(tmp_path):
    touch(tmp_path, "a/cars.pt", "b/cars.pt")
    with pytest.raises(ModelError, match=r"cars\.pt would both be called 'cars'\. Name them yourself"):
        find_sources([tmp_path])
    with pytest.raises(ModelError, match="holds 2 checkpoints, but 'x' can name only one"):
        find_sources([f"x={tmp_path}"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="holds no checkpoint"):
        find_sources([tmp_path / "empty"])
    with pytest.raises(ModelError, match="got no checkpoint"):
        find_sources([])


def test_the_public_banks_have_twenty_tasks_each_under_their_own_ids():
    found = find_sources(["tanganke-l14"])
    assert len(found) == 20
    assert found[1] == CheckpointSource(
        "stanford-cars", "tanganke/clip-vit-large-patch14_stanford-cars", is_remote=True
    )
    hub_ids = [hub_id for bank in PUBLIC_BANKS.values() for hub_id in bank.checkpoints.values()]
    assert len(set(hub_ids)) == 60
    with pytest.raises(ModelError, match="unpack the archives of fredzzhang/atlas, import the folder"):
        find_sources(["fredzzhang-atlas"])


# The hub.


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A function that points the hub's client at an address, with an empty cache of its own."""
    return lambda address: point_client_at(address, tmp_path / "hub", monkeypatch)


def test_a_hub_that_cannot_be_reached_is_one_sentence_within_ten_seconds(hub):
    hub("http://127.0.0.1:9")  # nothing listens there
    start = time.monotonic()
    with pytest.raises(HubError, match=r"cannot be reached\. Connect to the internet .* give their folder\."):
        fetch_from_hub("tanganke/clip-vit-base-patch32_sun397")
    assert time.monotonic() - start < 10


def test_a_checkpoint_is_fetched_once_together_with_its_model_card(hub, capfd, tmp_path):
    touch(tmp_path / "repositories", "owner/name/model.safetensors", "owner/name/README.md")
    (tmp_path / "repositories/owner/name/model.safetensors").write_bytes(b"weights")
    with HubServer(tmp_path / "repositories") as server:
        hub(server.address)
        path = fetch_from_hub("owner/name")
        assert path.read_bytes() == b"weights"
        assert (path.parent / "README.md").is_file()
        with pytest.raises(ModelError, match="'owner/other' cannot be fetched"):
            fetch_from_hub("owner/other")
        with pytest.raises(ModelError, match=r"holds no weights file\. Looked for: some/file\.pt"):
            fetch_from_hub("owner/name/some/file.pt")
    hub("http://127.0.0.1:9")
    server.requests.clear()
    assert fetch_from_hub("owner/name") == path
    assert server.requests == []
    assert capfd.readouterr() == ("", "")
