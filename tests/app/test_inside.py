"""Looking inside a result and taking it away, on a small real model with donors."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import safetensors.torch
import torch

import atlas_engine as atlas
from app import text
from app.handlers.choices import Choices
from app.handlers.inside import alike, donors_of, heat, look_inside, turned
from app.handlers.lesson import SampleFile
from app.handlers.takeaway import command_lines, load_recipe, python_lines, save_recipe, save_weights
from app.handlers.teach import teach
from app.prepared_examples import load_worked, make_worked
from atlas_engine.cli import main as atlas_command
from tests.donors import DONORS, engine_with_donors


def test_donors_are_told_with_their_data_and_share_one_whole(small, kept):
    inside = look_inside(small, kept.recipe)
    assert inside.moves
    assert {donor.name for donor in inside.donors} == set(DONORS)
    assert sum(donor.share for donor in inside.donors) == pytest.approx(1)
    lengths = [donor.length for donor in inside.donors]
    assert lengths == sorted(lengths, reverse=True)
    first = inside.donors[0]
    assert (first.dataset, first.classes, first.before, first.after) == (f"{first.name} set", "7", 0.25, 0.75)


@pytest.mark.parametrize("shows", ["mixed", "moved"])
@pytest.mark.parametrize("by", ["layer", "kind"])
def test_maps_have_a_row_for_each_donor(small, kept, shows, by):
    grid = heat(small, kept.recipe, shows=shows, by=by)
    assert set(grid.rows) == set(DONORS)
    assert len(grid.columns) > 1


def test_a_map_leaves_out_the_layers_that_nothing_happens_in(small, kept):
    whole = heat(small, kept.recipe)
    layer = look_inside(small, kept.recipe).layers[-1]
    less = heat(small, kept.recipe.scaled(layers={layer: 0.0}))
    assert len(less.columns) == len(whole.columns) - 1
    assert "left out" in less.about


def test_the_whole_bank_is_told_with_how_alike_its_donors_are(small):
    assert [donor.name for donor in donors_of(small)] == sorted(DONORS)
    assert {donor.before for donor in donors_of(small)} == {0.25}
    assert set(alike(small).rows) == set(DONORS)


def test_all_donors_out_leaves_the_head_and_the_base_model(small, kept):
    gone = turned(small, kept, tasks=dict.fromkeys(DONORS, 0.0), layers={})
    assert torch.equal(gone.zero_shot.probs, kept.comparison.adapted.probs)
    bare = small.compare(
        [sample.picture for sample in kept.samples], kept.recipe.scaled(tasks=dict.fromkeys(DONORS, 0.0))
    )
    assert torch.equal(gone.adapted.probs, bare.adapted.probs)
    assert not torch.allclose(gone.adapted.probs, kept.comparison.adapted.probs)


def test_a_layer_at_its_own_strength_changes_nothing_and_at_none_it_does(small, kept):
    layer = look_inside(small, kept.recipe).layers[-1]
    same = turned(small, kept, tasks={}, layers={layer: 1.0})
    assert torch.equal(same.adapted.probs, kept.comparison.adapted.probs)
    out = turned(small, kept, tasks={}, layers={layer: 0.0})
    assert not torch.equal(out.adapted.probs, kept.comparison.adapted.probs)


def test_a_recipe_taken_away_and_brought_back_says_the_same(small, kept, tmp_path):
    path = save_recipe(kept.recipe, tmp_path)
    assert Path(path).name == "blue-dark-green-red.atlas.safetensors"
    samples = [SampleFile(sample.path, sample.truth) for sample in kept.samples]
    brought, left_out = load_recipe(small, path, samples)
    assert left_out == ()
    assert torch.equal(brought.comparison.adapted.probs, kept.comparison.adapted.probs)
    assert brought.helped is None


def test_a_recipe_for_another_bank_is_refused_kindly(kept, tmp_path):
    path = save_recipe(kept.recipe, tmp_path)
    (tmp_path / "other").mkdir()
    other = engine_with_donors(tmp_path / "other", seed=1)
    with pytest.raises(atlas.AtlasError, match=r"blue-\S+: .*Open the one it was made with, or adapt anew"):
        load_recipe(other, path, [])


def test_a_file_that_is_no_recipe_is_refused_by_name_and_not_by_path(small, tmp_path):
    bad = tmp_path / "mine.safetensors"
    bad.write_bytes(b"MZ" * 200)
    with pytest.raises(atlas.AtlasError) as caught:
        load_recipe(small, str(bad), [])
    assert "mine.safetensors" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_the_weights_are_the_adapted_tower(small, kept, tmp_path):
    saved = safetensors.torch.load_file(save_weights(small, kept.recipe, tmp_path))
    tower = small.adapted(kept.recipe)
    assert {f"visual.{name}" for name in tower.state_dict()} == set(saved)
    for name, weights in tower.named_parameters():
        assert torch.equal(saved[f"visual.{name}"], weights)


@pytest.mark.parametrize("method", ["text-probe", "atlas"])
def test_where_no_block_moved_there_are_no_weights_to_take_and_the_page_says_why(
    small, lesson, tmp_path, method
):
    *_, last = teach(small, lesson, Choices(method=method, steps=0 if method == "atlas" else 1))
    with pytest.raises(atlas.AtlasError) as caught:
        save_weights(small, last.kept.recipe, tmp_path)
    assert str(caught.value) == text.NO_BLOCK_MOVED
    assert list(tmp_path.iterdir()) == []


def test_the_python_lines_are_python_with_the_settings_of_the_page(kept):
    lines = python_lines(kept)
    ast.parse(lines)
    assert "atlas.open()" in lines
    assert f"steps={kept.choices.steps}, lr={kept.choices.lr:g}" in lines


def test_what_the_python_lines_learn_from_a_folder_is_what_the_page_learned(small, kept, squares):
    support = atlas.Support.from_folder(squares / "teach")
    config = atlas.FewShotConfig(steps=kept.choices.steps, lr=kept.choices.lr)
    again = small.few_shot(support, method=kept.choices.method, config=config, seed=0).result()
    assert again.recipe.classes == kept.recipe.classes
    assert again.recipe == kept.recipe


def test_the_lines_for_the_terminal_are_known_to_the_command(kept, capsys):
    for line in command_lines(kept).splitlines():
        words = line.split()
        assert words[0] == "atlas"
        nouns = words[1:3] if words[1] == "adapt" else words[1:2]
        assert atlas_command([*nouns, "--help"]) == 0
        helped = capsys.readouterr().out
        assert all(flag in helped for flag in words if flag.startswith("-"))


def test_a_worked_example_is_made_once_and_shown_only_with_its_own_bank(small, lesson, tmp_path):
    class Example:
        path = tmp_path

    Example.lesson = lesson
    made = make_worked(small, Example, tmp_path)
    loaded = load_worked(small, Example)
    assert (loaded.sentence, loaded.helped, loaded.choices) == (made.sentence, made.helped, made.choices)
    assert loaded.recipe == made.recipe
    assert torch.equal(loaded.comparison.adapted.probs, made.comparison.adapted.probs)
    (tmp_path / "other").mkdir()
    assert load_worked(engine_with_donors(tmp_path / "other", seed=1), Example) is None
