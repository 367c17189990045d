"""Models by name: from local files, and from a hub that cannot be reached."""

from __future__ import annotations

import http.server
import threading
import time

import pytest
import torch

from atlas_engine import runtime
from atlas_engine.clip.models import open_backbone
from atlas_engine.errors import HubError, ModelError

runtime.ensure_torchvision()
import open_clip  # noqa: E402 - `runtime.ready` makes it importable

CPU = torch.device("cpu")
ARCH = "ViT-S-32-alt"  # the smallest of open_clip's plain architectures


@pytest.fixture(scope="module")
def small_clip():
    torch.manual_seed(0)
    return open_clip.create_model(ARCH).eval()


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_a_local_file_gives_the_same_features_as_the_model_it_came_from(small_clip, tmp_path, ending):
    from safetensors.torch import save_file

    path = tmp_path / f"weights.{ending}"
    state = {name: tensor.clone().contiguous() for name, tensor in small_clip.state_dict().items()}
    save_file(state, path) if ending == "safetensors" else torch.save(state, path)
    backbone = open_backbone(f"{ARCH}@{path}", device=CPU)
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(backbone.visual(images), small_clip.encode_image(images))
        tokens = open_clip.get_tokenizer(ARCH)(["an otter"])
        assert torch.equal(backbone.encode_text(["an otter"]), small_clip.encode_text(tokens))
    assert backbone.dim == small_clip.visual.output_dim
    assert backbone.preprocessing.size == 224
    assert backbone.name == f"{ARCH}@weights.{ending}", (
        "the name is saved in recipes: it must not hold a folder of this machine"
    )


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path):
    import pickle

    marker = tmp_path / "ran"

    class Hostile:
        def __reduce__(self):
            return (marker.touch, ())

    path = tmp_path / "weights.pt"
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ModelError, match="does not hold the weights"):
        open_backbone(f"{ARCH}@{path}", device=CPU)
    assert not marker.exists()


def test_weights_of_another_architecture_are_refused(small_clip, tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(small_clip.state_dict(), path)
    with pytest.raises(ModelError, match="Give the architecture that the file was made with"):
        open_backbone(f"RN50@{path}", device=CPU)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("ViT-B-23/openai", "Did you mean 'ViT-B-"),
        ("ViT-B-32/opnai", "Did you mean 'openai'"),
        ("ViT-B-32", "names no weights"),
        ("ViT-B-32@nowhere.pt", "does not exist"),
        ("ViT-B-32@image.jpg", "is not a weights file"),
    ],
)
def test_names_that_cannot_be_opened_say_what_is_wrong(model, words):
    with pytest.raises(ModelError, match=words):
        open_backbone(model, device=CPU)


@pytest.mark.parametrize("model", ["ViT-B-32/openai", "hf-hub:someone/something"])
def test_a_hub_that_refuses_connections_gives_one_sentence_within_ten_seconds(model, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(HubError, match=r"cannot be reached\. Connect to the internet"):
        open_backbone(model, device=CPU)
    assert time.monotonic() - start < 10


def test_a_hub_that_never_answers_gives_the_same_sentence_within_ten_seconds(monkeypatch, tmp_path):
    from huggingface_hub import constants

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            time.sleep(12)

        def log_message(self, *_):
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(HubError, match="cannot be reached"):
        open_backbone("ViT-B-32/openai", device=CPU)
    assert time.monotonic() - start < 10
    server.shutdown()
    server.server_close()
