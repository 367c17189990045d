"""Looking inside a result and taking it away, on a small real model with task vectors."""

from __future__ import annotations

import ast
import dataclasses
import tarfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import adapt_few_shot
from app.handlers.inside import (
    Strengths,
    coefficient_map,
    compare_scaled,
    inspect_recipe,
    list_task_vectors,
    similarity_map,
)
from app.handlers.settings import FewShotSettings
from app.handlers.takeaway import load_recipe, python_code, save_recipe, save_weights, shell_commands
from app.handlers.uploads import UploadedImage
from app.prepared_examples import load_few_shot, make_few_shot
from atlas_engine.cli import main as atlas_command
from atlas_engine.data import read_images
from tests.task_vectors import TASK_VECTORS, engine_with_task_vectors

GARMENTS = ("dress", "shirt", "shorts", "skirt")
LEARNED_AND_TRIED = 10  # images of a class: four to learn from, the others to try


def test_task_vectors_are_told_with_their_data_and_share_one_whole(small, saved):
    inside = inspect_recipe(small, saved.recipe)
    assert inside.moves
    assert {vector.name for vector in inside.task_vectors} == set(TASK_VECTORS)
    assert sum(vector.share for vector in inside.task_vectors) == pytest.approx(1)
    lengths = [vector.length for vector in inside.task_vectors]
    assert lengths == sorted(lengths, reverse=True)
    first = inside.task_vectors[0]
    assert (first.dataset, first.classes, first.before, first.after) == (f"{first.name} set", "7", 0.25, 0.75)


@pytest.mark.parametrize("shows", ["mixed", "moved"])
@pytest.mark.parametrize("by", ["layer", "kind"])
def test_maps_have_a_row_for_each_task_vector(small, saved, shows, by):
    grid = coefficient_map(small, saved.recipe, shows=shows, by=by)
    assert set(grid.rows) == set(TASK_VECTORS)
    assert len(grid.columns) > 1


def test_a_map_leaves_out_the_layers_that_nothing_happens_in(small, saved):
    whole = coefficient_map(small, saved.recipe)
    layer = inspect_recipe(small, saved.recipe).layers[-1]
    less = coefficient_map(small, saved.recipe.scaled(layers={layer: 0.0}))
    assert len(less.columns) == len(whole.columns) - 1
    assert "left out" in less.about


def test_the_whole_bank_is_told_with_how_alike_its_task_vectors_are(small):
    assert [vector.name for vector in list_task_vectors(small)] == sorted(TASK_VECTORS)
    assert {vector.before for vector in list_task_vectors(small)} == {0.25}
    assert set(similarity_map(small).rows) == set(TASK_VECTORS)


def test_all_task_vectors_out_leaves_the_head_and_the_base_model(small, saved):
    out = compare_scaled(small, saved, Strengths(dict.fromkeys(TASK_VECTORS, 0.0), {}))
    assert torch.equal(out.zero_shot.probs, saved.comparison.adapted.probs)
    bare = small.compare(
        [sample.image for sample in saved.samples],
        saved.recipe.scaled(tasks=dict.fromkeys(TASK_VECTORS, 0.0)),
    )
    assert torch.equal(out.adapted.probs, bare.adapted.probs)
    assert not torch.allclose(out.adapted.probs, saved.comparison.adapted.probs)


def test_a_layer_at_its_own_strength_changes_nothing_and_at_none_it_does(small, saved):
    layer = inspect_recipe(small, saved.recipe).layers[-1]
    same = compare_scaled(small, saved, Strengths({}, {layer: 1.0}))
    assert torch.equal(same.adapted.probs, saved.comparison.adapted.probs)
    out = compare_scaled(small, saved, Strengths({}, {layer: 0.0}))
    assert not torch.equal(out.adapted.probs, saved.comparison.adapted.probs)


def test_a_recipe_taken_away_and_brought_back_says_the_same(small, saved, tmp_path):
    path = save_recipe(saved.recipe, tmp_path)
    assert Path(path).name == "blue-dark-green-red.atlas.safetensors"
    samples = [UploadedImage(sample.path, sample.label) for sample in saved.samples]
    brought, left_out = load_recipe(small, path, samples)
    assert left_out == ()
    assert torch.equal(brought.comparison.adapted.probs, saved.comparison.adapted.probs)
    assert brought.helped is None


def test_a_recipe_for_another_bank_is_refused_kindly(saved, tmp_path):
    path = save_recipe(saved.recipe, tmp_path)
    (tmp_path / "other").mkdir()
    other = engine_with_task_vectors(tmp_path / "other", seed=1)
    with pytest.raises(atlas.AtlasError, match=r"blue-\S+: .*Open the one it was made with, or adapt anew"):
        load_recipe(other, path, [])


def test_a_file_that_is_no_recipe_is_refused_by_name_and_not_by_path(small, tmp_path):
    bad = tmp_path / "mine.safetensors"
    bad.write_bytes(b"MZ" * 200)
    with pytest.raises(atlas.AtlasError) as caught:
        load_recipe(small, str(bad), [])
    assert "mine.safetensors" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_the_weights_are_the_adapted_tower(small, saved, tmp_path):
    weights_file = safetensors.torch.load_file(save_weights(small, saved.recipe, tmp_path))
    tower = small.adapted(saved.recipe)
    assert {f"visual.{name}" for name in tower.state_dict()} == set(weights_file)
    for name, weights in tower.named_parameters():
        assert torch.equal(weights_file[f"visual.{name}"], weights)


@pytest.mark.parametrize("method", ["text-probe", "atlas"])
def test_where_no_block_moved_there_are_no_weights_to_take_and_the_page_says_why(
    small, few_shot_request, tmp_path, method
):
    *_, last = adapt_few_shot(
        small, few_shot_request, FewShotSettings(method=method, steps=0 if method == "atlas" else 1)
    )
    with pytest.raises(atlas.AtlasError) as caught:
        save_weights(small, last.result.recipe, tmp_path)
    assert str(caught.value) == text.takeaway.NO_BLOCK_MOVED
    assert list(tmp_path.iterdir()) == []


def test_the_python_lines_are_python_with_the_settings_of_the_page(saved):
    lines = python_code(saved)
    ast.parse(lines)
    assert "atlas.open()" in lines
    assert f"FewShotConfig(steps={saved.settings.steps})" in lines, "lr is left to the method"
    given = dataclasses.replace(saved, settings=dataclasses.replace(saved.settings, lr=0.2))
    assert f"FewShotConfig(steps={saved.settings.steps}, lr=0.2)" in python_code(given)


def test_what_the_python_lines_learn_from_a_folder_is_what_the_page_learned(small, saved, squares):
    support = atlas.Support.from_folder(squares / "teach")
    config = atlas.FewShotConfig(steps=saved.settings.steps, lr=saved.settings.lr)
    again = small.few_shot(support, method=saved.settings.method, config=config, seed=0).result()
    assert again.recipe.classes == saved.recipe.classes
    assert again.recipe == saved.recipe


def test_the_lines_for_the_terminal_are_known_to_the_command(saved, capsys):
    for line in shell_commands(saved).splitlines():
        words = line.split()
        assert words[0] == "atlas"
        nouns = words[1:3] if words[1] == "adapt" else words[1:2]
        assert atlas_command([*nouns, "--help"]) == 0
        helped = capsys.readouterr().out
        assert all(flag in helped for flag in words if flag.startswith("-"))


def test_a_worked_example_is_made_once_and_shown_only_with_its_own_bank(small, few_shot_request, tmp_path):
    class Example:
        path = tmp_path

    Example.request = few_shot_request
    made = make_few_shot(small, Example, tmp_path)
    loaded = load_few_shot(small, Example)
    assert (loaded.sentence, loaded.helped, loaded.settings) == (made.sentence, made.helped, made.settings)
    assert loaded.recipe == made.recipe
    assert torch.equal(loaded.comparison.adapted.probs, made.comparison.adapted.probs)
    (tmp_path / "other").mkdir()
    assert load_few_shot(engine_with_task_vectors(tmp_path / "other", seed=1), Example) is None


@pytest.mark.slow
def test_for_garments_the_task_vector_of_garments_comes_first(engine, shared_data, tmp_path):
    with tarfile.open(shared_data / "clothing.tar") as packed:
        names = sorted(packed.getnames())
        files = [
            [name for name in names if name.startswith(f"clothing/{one}/")][:LEARNED_AND_TRIED]
            for one in GARMENTS
        ]
        packed.extractall(tmp_path, [packed.getmember(name) for of in files for name in of], filter="data")
    learned = read_images([tmp_path / name for of in files for name in of[:4]])[0]
    tried = read_images([tmp_path / name for of in files for name in of[4:]])[0]
    labels = tuple(label for label, of in enumerate(files) for _ in of[:4])
    run = engine.few_shot(atlas.Support(learned, labels, GARMENTS), method="atlas+text-probe")
    inside = inspect_recipe(engine, run.result().recipe, tried)
    assert inside.task_vectors[0].name == "clothing"
