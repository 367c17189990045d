"""What strangers may send to the real server: they get a sentence with the file and the remedy.

Pictures go through `/predict`, zips through `/adapt` and recipes through `/compare`; after each the same
client is answered as ever.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import zipfile
import zlib
from pathlib import Path

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

import atlas_engine as atlas
from app import text
from app.examples import FEW_SHOT_EXAMPLES
from app.limits import LIMITS
from app.prepared_examples import RECIPE

ELF = b"\x7fELF\x02\x01\x01" + b"\0" * 57
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 200
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@pytest.fixture(scope="module")
def client(server):
    return Client(server.address, verbose=False)


@pytest.fixture
def healthy(client, draw):
    """Afterwards, the next question is answered."""
    yield
    answered = client.predict(images=[handle_file(draw("fine.png"))], classes="cat, dog", api_name="/predict")
    assert [row["image"] for row in answered["rows"]] == ["fine.png"]


def vast_png():
    """20,000 × 20,000 white points in a few kilobytes."""
    rows = zlib.compressobj(9)
    line = b"\0" + b"\xff" * 2500
    data = b"".join(rows.compress(line * 500) for _ in range(40)) + rows.flush()
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def gif():
    saved = io.BytesIO()
    Image.new("P", (8, 8)).save(saved, "GIF")
    return saved.getvalue()


def packed(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members:
            made.writestr(name, data)
    return handle_file(path)


def refused(client, **asked):
    with pytest.raises(AppError) as caught:
        client.predict(**asked)
    said = str(caught.value)
    assert said != text.page.BROKEN
    return said


@pytest.mark.usefixtures("healthy")
def test_pictures_that_are_none_are_each_named_with_the_remedy_and_the_good_one_is_answered(
    client, draw, tmp_path
):
    bad = {
        "phone.heic": HEIC,
        "moving.gif": gif(),
        "drawn.svg": SVG,
        "vast.png": vast_png(),
        "setup.jpg": ELF,
        "empty.jpg": b"",
        "page.png": b"<!doctype html><title>hello</title>",
    }
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    files = [handle_file(tmp_path / name) for name in bad]
    answered = client.predict(
        images=[*files, handle_file(draw("good.png"))], classes="cat, dog", api_name="/predict"
    )
    assert [row["image"] for row in answered["rows"]] == ["good.png"]
    assert [sentence.split(":")[0] for sentence in answered["left_out"]] == list(bad)
    remedies = ("save it", "get the file again", "give an image instead")
    for sentence in answered["left_out"]:
        assert any(word in sentence.lower() for word in remedies), sentence


@pytest.mark.usefixtures("healthy")
def test_a_zip_that_swells_or_climbs_out_is_refused_or_made_harmless(client, draw, tmp_path):
    picture = Path(draw("ok.png")).read_bytes()
    bomb = packed(tmp_path / "bomb.zip", [(f"{name}/1.png", b"\0" * (60 << 20)) for name in "ab"])
    assert "bomb.zip" in refused(client, archive=bomb, samples=[], api_name="/adapt")
    climbing = packed(tmp_path / "climbing.zip", [("../../a/1.png", picture), ("../../b/1.png", picture)])
    assert "climbing.zip" in refused(client, archive=climbing, samples=[], api_name="/adapt")
    many = packed(tmp_path / "many.zip", [(f"{n % 2}/{n}.png", picture) for n in range(LIMITS.zip_files + 1)])
    assert "many.zip" in refused(client, archive=many, samples=[], api_name="/adapt")
    full = packed(tmp_path / "full.zip", [(f"{n % 2}/{n}.png", picture) for n in range(LIMITS.zip_files)])
    assert str(LIMITS.support_images) in refused(client, archive=full, samples=[], api_name="/adapt")


@pytest.mark.usefixtures("healthy")
def test_a_thousand_files_at_once_are_counted_and_refused(client, server, draw):
    one = Path(draw("one.png")).read_bytes()
    parts = [("files", (f"{number}.png", one, "image/png")) for number in range(1000)]
    uploaded = httpx.post(f"{server.address}/gradio_api/upload", files=parts, timeout=120).json()
    references = [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in uploaded]
    call = f"{server.address}/gradio_api/call/predict"
    event = httpx.post(call, json={"data": [references, "cat, dog"]}, timeout=120).json()["event_id"]
    said = httpx.get(f"{call}/{event}", timeout=120).text
    assert text.ask.many_images(1000) in said


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize(
    ("names", "said"), [("cat, Cat", "twice"), (f"cat, {'x' * 500}", "500"), ("cat\n \n", "one class name")]
)
def test_class_names_that_cannot_be_told_apart_or_read_are_refused(client, draw, names, said):
    files = [handle_file(draw("a.png"))]
    assert said in refused(client, images=files, classes=names, api_name="/predict")


def test_class_names_that_look_like_code_come_back_as_words(client, draw):
    evil = ["<script>alert(1)</script>", "{{7*7}}", "'; DROP TABLE x --"]
    answered = client.predict(
        images=[handle_file(draw("a.png"))], classes="\n".join(evil).replace(";", ""), api_name="/predict"
    )
    found = {guess["label"] for guess in answered["rows"][0]["top"]}
    assert found == {name.replace(";", "") for name in evil}


@pytest.mark.usefixtures("healthy")
def test_two_folders_of_one_name_are_refused(client, draw, tmp_path):
    picture = Path(draw("ok.png")).read_bytes()
    twice = packed(tmp_path / "twice.zip", [("seal/1.png", picture), ("Seal/2.png", picture)])
    assert "seal" in refused(client, archive=twice, samples=[], api_name="/adapt").lower()


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize("other", ["bank_fingerprint", "model_fingerprint"])
def test_a_recipe_for_another_bank_or_model_is_refused_with_the_remedy(client, draw, tmp_path, other):
    recipe = atlas.Recipe.load(FEW_SHOT_EXAMPLES[0].path / RECIPE)
    dataclasses.replace(recipe, **{other: "0" * 64}).save(tmp_path / "other.atlas.safetensors")
    said = refused(
        client,
        samples=[handle_file(draw("a.png"))],
        recipe=handle_file(tmp_path / "other.atlas.safetensors"),
        api_name="/compare",
    )
    assert said.startswith("other.atlas.safetensors: ")
    assert "adapt anew" in said
