"""A recipe survives the disk, refuses another model or bank, and trusts nothing that a stranger wrote."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from torch.nn.functional import normalize

from atlas_engine.bank.blocks import block_table
from atlas_engine.calibration import Calibration
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.errors import ConfigError, RecipeError
from atlas_engine.heads.base import text_logits
from atlas_engine.heads.lpp import LPP
from atlas_engine.recipe import MAX_RECIPE_NBYTES, PREDICT_BATCH, Recipe, as_predictor
from atlas_engine.runtime import generator
from tests.engines import tiny_engine

BLOCKS = block_table(
    [("conv1.weight", torch.zeros(4, 3, 2, 2)), ("ln.weight", torch.zeros(4)), ("proj", torch.zeros(4, 2))]
)


def make_recipe(*, layout=None, **changes):
    layout = layout or Layout()
    shape = layout.shape(2, BLOCKS)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    parts = {
        "coefficients": Coefficients(values, layout, ("cars", "signs"), BLOCKS),
        "model": "ViT-B-32/openai",
        "model_fingerprint": "a" * 64,
        "bank_fingerprint": "b" * 64,
        "classes": ("otter", "Seehund, 海豹"),
        "method": "few-shot",
        "config": {"lr": 0.1, "steps": 100, "schedule": "cosine", "deadline_seconds": None, "seeds": [1, 2]},
        "seed": 7,
    }
    return Recipe(**{**parts, **changes})


@pytest.mark.parametrize(
    "layout",
    [
        Layout(),
        Layout("isotropic"),
        Layout("matrices"),
        Layout(partitions=3, seed=9),
        Layout(partitions=3, seed=9, split_by="rows"),
    ],
    ids=repr,
)
def test_save_then_load_gives_an_equal_recipe(layout, tmp_path):
    recipe = make_recipe(layout=layout, head={"keys": torch.randn(5, 2), "alpha": torch.tensor(2.0)})
    recipe.save(tmp_path / "r.safetensors")
    loaded = Recipe.load(tmp_path / "r.safetensors")
    assert loaded == recipe
    assert loaded.coefficients.layout == layout
    assert loaded.coefficients.blocks == BLOCKS
    assert torch.equal(loaded.coefficients["signs", "proj"], recipe.coefficients["signs", "proj"])
    assert loaded.config == recipe.config
    assert loaded.versions["torch"] == torch.__version__


def test_a_recipe_is_a_few_kilobytes_and_leaves_no_other_file(tmp_path):
    make_recipe().save(tmp_path / "r.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["r.safetensors"]
    assert (tmp_path / "r.safetensors").stat().st_size < 4096


@pytest.mark.parametrize(
    "change", [{"seed": 8}, {"classes": ("otter",)}, {"config": {}}, {"head": {"alpha": torch.zeros(1)}}]
)
def test_recipes_that_differ_are_not_equal(change):
    assert make_recipe() != make_recipe(**change)
    assert make_recipe() == make_recipe()


def test_recipes_with_other_coefficients_are_not_equal():
    other = make_recipe()
    other.coefficients.values[0, 0] += 1
    assert make_recipe() != other


def test_a_recipe_owns_its_tensors():
    values = torch.zeros(2, 3)
    recipe = make_recipe(coefficients=Coefficients(values, Layout(), ("cars", "signs"), BLOCKS))
    values += 1
    assert not recipe.coefficients.values.any()
    assert copy.deepcopy(recipe) == recipe
    assert repr(recipe) == "Recipe(few-shot for ViT-B-32/openai, 2 tasks × 3 blocks, seed 7)"


def test_a_scaled_recipe_has_other_coefficients_and_is_the_same_otherwise(tmp_path):
    recipe = make_recipe(head={"alpha": torch.tensor(2.0)})
    scaled = recipe.scaled(tasks={"signs": 0}, layers={0: 0.5})
    assert not scaled.coefficients["signs"].any()
    assert torch.equal(
        scaled.coefficients["cars", "conv1.weight"], recipe.coefficients["cars", "conv1.weight"] / 2
    )
    assert replace(scaled, coefficients=recipe.coefficients) == recipe
    scaled.save(tmp_path / "r")
    assert Recipe.load(tmp_path / "r") == scaled
    with pytest.raises(ConfigError, match="Did you mean 'cars'"):
        recipe.scaled(tasks={"car": 0})


def test_a_recipe_that_cannot_be_written_is_one_sentence(tmp_path):
    for name, sentence in (("nowhere/r", "Create it first"), ("r" * 250, "Choose another file")):
        with pytest.raises(RecipeError, match=sentence):
            make_recipe().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_isotropic_recipe_with_a_layer_scaled_can_be_saved(tmp_path):
    scaled = make_recipe(layout=Layout("isotropic")).scaled(layers={0: 0})
    scaled.save(tmp_path / "r")
    assert Recipe.load(tmp_path / "r").coefficients.layout == Layout()


def test_the_right_model_and_bank_are_accepted():
    make_recipe().check(model_fingerprint="a" * 64, bank_fingerprint="b" * 64)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"model_fingerprint": "c" * 64, "bank_fingerprint": "b" * 64},
            "the model aaaaaaaaaaaa, and the model cccccccccccc",
        ),
        (
            {"model_fingerprint": "a" * 64, "bank_fingerprint": "c" * 64},
            "the bank bbbbbbbbbbbb, and the bank cccccccccccc",
        ),
    ],
)
def test_another_model_or_bank_is_refused_and_named(given, sentence):
    with pytest.raises(RecipeError, match=sentence):
        make_recipe().check(**given)


def test_a_model_without_a_bank_is_told_that_the_recipe_is_for_another_model():
    with pytest.raises(RecipeError, match="Open the one it was made with"):
        tiny_engine().compare([], make_recipe())


def test_saving_into_a_folder_that_is_not_there_says_so(tmp_path):
    with pytest.raises(RecipeError, match="Create it first"):
        make_recipe().save(tmp_path / "none" / "r.safetensors")


def take_apart(recipe, path):
    """The metadata and tensors as a stranger may take them apart."""
    recipe.save(path)
    with safetensors.safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def forge(path, *, description=None, metadata=None, tensors=None):
    """A recipe file with some of its content replaced."""
    given, weights = take_apart(make_recipe(head={"alpha": torch.zeros(1)}), path)
    changed = json.dumps({**json.loads(given["recipe"]), **(description or {})})
    safetensors.torch.save_file(
        weights if tensors is None else tensors(weights),
        path,
        metadata={**given, "recipe": changed, **(metadata or {})},
    )


def test_an_endless_number_is_not_a_setting(tmp_path):
    given, weights = take_apart(make_recipe(), tmp_path / "r")
    endless = given["recipe"].replace('"lr":0.1', '"lr":1e999')
    safetensors.torch.save_file(weights, tmp_path / "r", metadata={**given, "recipe": endless})
    with pytest.raises(RecipeError, match="not plain values"):
        Recipe.load(tmp_path / "r")


def test_blocks_without_coefficients_take_no_room_in_the_file(tmp_path):
    recipe = make_recipe()
    some = recipe.coefficients.values.clone()
    some[:, 1:] = 0
    fewer = dataclasses.replace(recipe, coefficients=dataclasses.replace(recipe.coefficients, values=some))
    fewer.save(tmp_path / "r")
    assert safetensors.torch.load_file(tmp_path / "r")[TENSOR].shape[1] == 1
    assert Recipe.load(tmp_path / "r") == fewer


def test_an_honest_forgery_loads(tmp_path):
    forge(tmp_path / "r", description={"seed": 9})
    assert Recipe.load(tmp_path / "r").seed == 9


ROW = ["conv1.weight", [4, 3, 2, 2], 0, "conv"]
TENSOR = "coefficients"


@pytest.mark.parametrize(
    ("forgery", "sentence"),
    [
        ({"metadata": {"format": "atlas-recipe-1"}}, "its format is 'atlas-recipe-1'"),
        ({"metadata": {"recipe": "[]"}}, "'recipe' is not dict"),
        ({"metadata": {"recipe": "{"}}, "Expecting"),
        ({"metadata": {"recipe": "[" * 100_000}}, "recursion"),
        ({"metadata": {"recipe": '{"seed": NaN}'}}, "its header holds NaN"),
        ({"metadata": {"recipe": "{}"}}, "it lacks 'layout'"),
        ({"description": {"seed": "7"}}, "'seed' is not int"),
        ({"description": {"seed": True}}, "'seed' is not int"),
        ({"description": {"classes": "otter"}}, "'classes' is not list"),
        ({"description": {"classes": [1]}}, "'classes' is not str"),
        ({"description": {"classes": ["x" * 301]}}, "too long"),
        ({"description": {"classes": ["\x1b[2J"]}}, "unprintable"),
        ({"description": {"classes": ["x"] * 20_001}}, "it names 20001"),
        ({"description": {"config": {"a": ["x" * 301]}}}, "too long"),
        ({"description": {"config": {"a": {"b": 1}}}}, "not plain values"),
        ({"description": {"config": {"a": [[1]]}}}, "not plain values"),
        ({"description": {"config": {"a": list(map(str, range(20_001)))}}}, "it names 20002"),
        ({"description": {"config": {"\x07": 1}}}, "unprintable"),
        ({"description": {"versions": {"torch": 2}}}, "'versions' is not str"),
        ({"description": {"tasks": ["cars", "cars"]}}, "not all different"),
        ({"description": {"tasks": []}}, "there are none"),
        ({"description": {"tasks": ["cars"]}}, "but its tasks and blocks need"),
        (
            {"description": {"layout": {"granularity": "whole", "partitions": 1, "seed": 0}}},
            "granularity 'whole' is not known",
        ),
        (
            {
                "description": {
                    "layout": {"granularity": "block", "partitions": 2, "seed": 0, "split_by": "cols"}
                }
            },
            "split_by 'cols' is not known",
        ),
        ({"description": {"layout": {"granularity": "block", "partitions": 0, "seed": 0}}}, "partitions"),
        ({"description": {"layout": {"granularity": "block", "partitions": 10**30, "seed": 0}}}, "too many"),
        ({"description": {"moved": [0, 10**9]}}, "not its own"),
        ({"description": {"moved": [-1]}}, "not its own"),
        ({"description": {"moved": [1, 0]}}, "not in order"),
        ({"description": {"moved": [0]}}, "but its tasks and blocks need"),
        ({"description": {"moved": ["0"]}}, "'moved' is not int"),
        ({"description": {"blocks": [ROW]}}, "does not match its own fingerprint"),
        ({"description": {"blocks": [ROW, ROW]}}, "appears twice"),
        ({"description": {"blocks": [["w", [2**40], 0, "conv"]]}}, "no sensible shape"),
        ({"description": {"blocks": [["w", [2], 0, "magic"]]}}, "no sensible shape or kind"),
        ({"description": {"blocks": [["w", [2]]]}}, "not enough values"),
        ({"description": {"blocks_fingerprint": "0"}}, "does not match its own fingerprint"),
        ({"description": {"head": []}}, "not those it names"),
        ({"tensors": lambda t: {**t, "more": torch.zeros(1)}}, "not those it names"),
        ({"tensors": lambda t: {"head.alpha": t["head.alpha"]}}, "not those it names"),
        ({"tensors": lambda t: {**t, TENSOR: t[TENSOR].double()}}, "must be float32"),
        ({"tensors": lambda t: {**t, TENSOR: t[TENSOR][:1].contiguous()}}, "but its tasks and blocks need"),
        ({"tensors": lambda t: {**t, TENSOR: t[TENSOR] * math.nan}}, "NaN or infinity"),
        (
            {"tensors": lambda t: {**t, "head.alpha": torch.tensor([math.inf])}},
            "'head.alpha' holds NaN or infinity",
        ),
    ],
)
def test_a_forged_recipe_is_refused_with_its_fault(tmp_path, forgery, sentence):
    forge(tmp_path / "r", **forgery)
    with pytest.raises(RecipeError, match=r"is not a recipe that can be used: ") as refusal:
        Recipe.load(tmp_path / "r")
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        b"\xff" * 8,
        b"\x10" + b"\x00" * 7,
        b"\x02" + b"\x00" * 7 + b"[]",
        b"GIF89a" * 100,
        os.urandom(256),
    ],
    ids=["empty", "short", "endless header", "cut header", "list header", "gif", "noise"],
)
def test_a_file_that_is_something_else_is_refused(tmp_path, data):
    (tmp_path / "r").write_bytes(data)
    with pytest.raises(RecipeError, match="is not a recipe"):
        Recipe.load(tmp_path / "r")


def test_a_recipe_cut_anywhere_is_refused(tmp_path):
    make_recipe().save(tmp_path / "r")
    whole = (tmp_path / "r").read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "r").write_bytes(whole[:length])
        with pytest.raises(RecipeError):
            Recipe.load(tmp_path / "r")


def test_a_recipe_with_any_byte_of_its_header_changed_is_refused_or_still_a_recipe(tmp_path):
    make_recipe().save(tmp_path / "r")
    whole = (tmp_path / "r").read_bytes()
    refused = 0
    for position in range(0, len(whole), 11):
        (tmp_path / "r").write_bytes(
            whole[:position] + bytes([whole[position] ^ 0x15]) + whole[position + 1 :]
        )
        try:
            assert isinstance(Recipe.load(tmp_path / "r"), Recipe)
        except RecipeError:
            refused += 1
    assert refused > 20


def test_a_file_too_large_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "r").open("wb") as file:
        file.truncate(MAX_RECIPE_NBYTES + 1)
    with pytest.raises(RecipeError, match="larger than 64 MiB"):
        Recipe.load(tmp_path / "r")


def test_no_file_and_a_folder_are_refused_plainly(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(RecipeError, match="there is no such file"):
            Recipe.load(path)


# ---- the predictor


def predict_tiny(pixels, **changes):
    """Logits by a recipe on the base tower of the tiny model."""
    backbone, text = tiny_engine().backbone, tiny_engine().head(("otter", "seal"))
    return as_predictor(make_recipe(**changes), backbone.visual, backbone, text)(pixels)


def tiny_features(pixels):
    backbone = tiny_engine().backbone
    with torch.inference_mode():
        return normalize(backbone.visual(backbone.as_input(pixels.float() / 255)), dim=-1)


def random_pixels(count):
    return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator(0))


def test_without_a_head_the_predictor_is_zero_shot():
    pixels, text = random_pixels(5), tiny_engine().head(("otter", "seal"))
    wanted = text_logits(tiny_features(pixels), text, logit_scale=20.0)
    torch.testing.assert_close(predict_tiny(pixels, config={}), wanted)
    torch.testing.assert_close(predict_tiny(pixels, config={"head": "none"}), wanted)


def test_the_predictor_uses_the_head_of_the_recipe():
    pixels, text = random_pixels(5), tiny_engine().head(("otter", "seal"))
    tensors = {"w": torch.randn(2, 16, generator=generator(1)), "alpha": torch.tensor([3.0, 4.0])}
    wanted = LPP.from_tensors(tensors, text, logit_scale=20.0).logits(tiny_features(pixels))
    torch.testing.assert_close(predict_tiny(pixels, config={"head": "lpp"}, head=tensors), wanted)


def test_many_images_are_predicted_as_few_are():
    pixels = random_pixels(PREDICT_BATCH + 3)
    parts = [predict_tiny(part, config={}) for part in pixels.split(5)]
    torch.testing.assert_close(predict_tiny(pixels, config={}), torch.cat(parts))  # other batches, other sums


def test_a_recipe_whose_head_does_not_fit_its_name_is_refused():
    with pytest.raises(RecipeError, match="a head of this kind keeps alpha, w"):
        predict_tiny(random_pixels(1), config={"head": "lpp"}, head={"alpha": torch.zeros(2)})
    with pytest.raises(ConfigError, match="Did you mean 'lpp'"):
        predict_tiny(random_pixels(1), config={"head": "lp++"})


@pytest.mark.parametrize("given", ["photo", 5, [], ["no gap"], [7], ["{}" * 140]])
def test_templates_that_a_stranger_wrote_are_checked(given):
    with pytest.raises(RecipeError, match="templates"):
        make_recipe(config={"templates": given})
    assert make_recipe(config={"templates": ["a {}."]}).templates == ("a {}.",)
    assert make_recipe().templates is None


def test_the_predictor_runs_in_the_precision_of_the_machine(monkeypatch):
    pixels, found = random_pixels(5), []
    for word in ("off", "bfloat16"):
        monkeypatch.setenv("ATLAS_AUTOCAST", word)
        found.append(predict_tiny(pixels))
        assert found[-1].dtype == torch.float32
    assert not torch.equal(*found)
    torch.testing.assert_close(*found, rtol=0, atol=0.5)  # cosines to 2^-6, times a logit scale of 20


def test_a_calibration_survives_the_disk_and_an_uncalibrated_file_has_no_trace_of_it(tmp_path):
    for calibration in (Calibration(1.5, -2.25, 0.9), Calibration(0.5), None):
        recipe = make_recipe(calibration=calibration)
        recipe.save(tmp_path / "r.safetensors")
        assert Recipe.load(tmp_path / "r.safetensors") == recipe
        assert Recipe.load(tmp_path / "r.safetensors").calibration == calibration
    assert b"calibration" not in (tmp_path / "r.safetensors").read_bytes()  # the last has none


@pytest.mark.parametrize(
    "calibration",
    [[1.0], {"temperature": 1.0}, {"temperature": None, "reject_below": None, "kept_share": None},
     {"temperature": 1, "reject_below": None, "kept_share": None},
     {"temperature": -1.0, "reject_below": None, "kept_share": None}],
)  # fmt: skip
def test_a_calibration_that_makes_no_sense_is_refused(calibration, tmp_path):
    path = tmp_path / "r.safetensors"
    make_recipe(calibration=Calibration(2.0, 1.0, 0.5)).save(path)
    data = path.read_bytes()
    nbytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + nbytes])
    description = json.loads(header["__metadata__"]["recipe"]) | {"calibration": calibration}
    header["__metadata__"]["recipe"] = json.dumps(description)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + nbytes :])
    with pytest.raises(RecipeError, match="not a recipe that can be used"):
        Recipe.load(path)
