"""Recipes and banks from strangers: a field replaced by any odd value ends in a sentence or an answer."""

from __future__ import annotations

import copy
import json
import math

import pytest
import safetensors.torch
import torch

from atlas_engine.bank import tensor_file
from atlas_engine.bank.bank_file import BankFile, load_bank
from atlas_engine.bank.check import check_bank
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.errors import AtlasError, BankError, RecipeError
from atlas_engine.recipe import Recipe
from atlas_engine.runtime import generator
from tests.task_vectors import engine_with_task_vectors

ODD = (
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    -0.0,
    "",
    "x",
    "x" * 5000,
    "\x00\x1b[2J\u202e",
    [],
    [None],
    [[]],
    {},
    {"x": None},
    json.loads("[" * 400 + "]" * 400),
    ["x"] * 3000,
)
IMAGE = torch.zeros(8, 8, 3, dtype=torch.uint8).numpy()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return engine_with_task_vectors(tmp_path_factory.mktemp("bank"))


@pytest.fixture(scope="module")
def recipe(engine):
    coefficients = Coefficients.zeros(engine.bank.tasks, engine.bank.blocks)
    coefficients.values[:, :4] = torch.randn(3, 4, generator=generator(0))
    return Recipe(
        coefficients=coefficients,
        model="tiny",
        model_fingerprint=engine.fingerprint,
        bank_fingerprint=engine.bank.fingerprint,
        classes=("otter", "seal"),
        method="few-shot",
        config={"head": "lpp", "steps": 3, "lr": 0.1},
        head={"w": torch.randn(2, 16, generator=generator(1)), "alpha": torch.ones(2)},
    )


@pytest.fixture
def parts(recipe, tmp_path):
    """The description and the tensors of the recipe's file."""
    recipe.save(tmp_path / "r")
    with safetensors.safe_open(tmp_path / "r", "pt") as file:
        description = json.loads(file.metadata()["recipe"])
        return description, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write_recipe(path, description, tensors):
    metadata = {"format": "atlas-recipe-2", "recipe": json.dumps(description)}
    safetensors.torch.save_file(tensors, path, metadata=metadata)
    return path


def outcome(engine, path):
    """What becomes of a recipe file: its answers for an image, or the sentence that refuses it."""
    try:
        loaded = Recipe.load(path)
        assert Recipe.load(save_again(loaded, path)) == loaded
        compared = engine.compare([IMAGE], loaded)
    except AtlasError as error:
        sentence = str(error)
        assert 10 < len(sentence) < 700, sentence
        assert sentence.isprintable(), sentence
        return sentence
    assert all(math.isfinite(prob) for prob in compared.adapted.probs[0])
    return compared


def save_again(loaded, path):
    loaded.save(path.with_suffix(".again"))
    return path.with_suffix(".again")


def places(value, path=()):
    """Every place in a JSON value; of a long list only the first two items."""
    yield path
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(value, path, odd):
    if not path:
        return odd
    changed = copy.copy(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], odd)
    return changed


def test_the_recipe_itself_is_answered(engine, parts, tmp_path):
    assert not isinstance(outcome(engine, write_recipe(tmp_path / "r", *parts)), str)


def test_every_field_of_a_recipe_replaced_by_odd_values_is_refused_or_answered(engine, parts, tmp_path):
    description, tensors = parts
    tried = 0
    for place in places(description):
        for odd in ODD:
            forged = write_recipe(tmp_path / "r", replaced(description, place, odd), tensors)
            try:
                outcome(engine, forged)
            except Exception as error:
                raise AssertionError(f"{place} = {odd!r:.60}") from error
            tried += 1
    assert tried > 500


@pytest.mark.parametrize(
    "place", ["model", "classes", "tasks", "layout", "blocks", "config", "seed", "moved"]
)
def test_a_field_left_out_of_a_recipe_is_named(parts, tmp_path, place):
    description, tensors = parts
    del description[place]
    with pytest.raises(RecipeError, match=f"it lacks '{place}'"):
        Recipe.load(write_recipe(tmp_path / "r", description, tensors))


@pytest.mark.parametrize("value", [1e6, -1e6, 3e38, math.nan, math.inf])
def test_absurd_coefficients_are_refused(parts, tmp_path, value):
    description, tensors = parts
    tensors["coefficients"][0, 0] = value
    with pytest.raises(RecipeError, match=r"'coefficients' (holds NaN|reaches)"):
        Recipe.load(write_recipe(tmp_path / "r", description, tensors))


@pytest.mark.parametrize("name", ["head.w", "head.alpha"])
def test_an_absurd_head_is_refused(parts, tmp_path, name):
    description, tensors = parts
    tensors[name] = torch.full_like(tensors[name], 1e20)
    with pytest.raises(RecipeError, match=f"'{name}' reaches"):
        Recipe.load(write_recipe(tmp_path / "r", description, tensors))


def test_a_recipe_without_classes_or_with_one_twice_is_refused_where_it_would_be_asked(
    engine, parts, tmp_path
):
    description, tensors = parts
    for classes, sentence in (([], "class"), (["otter"], "class"), (["otter", "Otter "], "otter")):
        found = outcome(engine, write_recipe(tmp_path / "r", {**description, "classes": classes}, tensors))
        assert isinstance(found, str)
        assert sentence in found.casefold()


@pytest.mark.parametrize("depth", [500, 100_000])
def test_a_deep_header_is_refused(tmp_path, depth):
    deep = "[" * depth + "]" * depth
    header = json.dumps({"__metadata__": {"format": "atlas-recipe-2", "recipe": deep}}).encode()
    for text in (header, f'{{"__metadata__": {deep}}}'.encode(), f'{{"x": {deep}}}'.encode()):
        (tmp_path / "r").write_bytes(len(text).to_bytes(8, "little") + text)
        with pytest.raises(RecipeError, match="is not a recipe that can be used"):
            Recipe.load(tmp_path / "r")
        with pytest.raises(BankError, match="is not a bank file"):
            BankFile(tmp_path / "r")


# ---- banks


@pytest.fixture
def bank_parts(engine, tmp_path):
    """The manifest and the tensors of the engine's bank file."""
    file = tensor_file.TensorFile(engine.bank_path, format_name="atlas-bank-1")
    with file:
        tensors = dict(file.read_all())
    manifest = {key: value for key, value in file.manifest.items() if key != "checksums"}
    return manifest, tensors


def write_bank(path, manifest, tensors):
    """A bank file with a seal and checksums that are right: anybody can make them."""
    tensor_file.write_tensors(path, tensors, manifest=manifest, format_name="atlas-bank-1")
    return path


def test_the_bank_itself_loads(bank_parts, tmp_path):
    assert load_bank(write_bank(tmp_path / "b", *bank_parts)).tasks == ("signs", "flowers", "garments")


def test_every_field_of_a_manifest_replaced_by_odd_values_is_refused_or_loads(bank_parts, tmp_path):
    manifest, tensors = bank_parts
    tried = 0
    for place in places(manifest):
        for odd in ODD:
            forged = replaced(manifest, place, odd)
            if not isinstance(forged, dict):
                continue  # the whole manifest: see the next test
            path = write_bank(tmp_path / "b", forged, tensors)
            try:
                repr(load_bank(path))
            except BankError as error:
                assert str(error).isprintable(), place  # noqa: PT017 - both outcomes are fine
            except Exception as error:
                raise AssertionError(f"{place} = {odd!r:.60}") from error
            tried += 1
    assert tried > 200


@pytest.mark.parametrize(
    "manifest", ["null", "[]", "7", '"x"', "{}", '{"checksums": null}', '{"checksums": [1]}']
)
def test_a_manifest_of_another_kind_is_refused(tmp_path, manifest):
    seal = tensor_file._seal(manifest, {})
    metadata = {"format": "atlas-bank-1", "manifest": manifest, "seal": seal}
    header = json.dumps({"__metadata__": metadata}).encode()
    (tmp_path / "b").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(BankError, match=r"is not a bank file|is damaged|manifest"):
        load_bank(tmp_path / "b")


@pytest.mark.parametrize("odd", [None, 7, "0" * 32, "", [], {}])
def test_an_odd_checksum_is_refused(engine, tmp_path, odd):
    data = engine.bank_path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    manifest = json.loads(header["__metadata__"]["manifest"])
    first = next(iter(manifest["checksums"]))
    manifest["checksums"][first] = odd
    text = json.dumps(manifest)
    table = {key: value for key, value in header.items() if key != "__metadata__"}
    header["__metadata__"] |= {"manifest": text, "seal": tensor_file._seal(text, table)}
    written = json.dumps(header).encode()
    (tmp_path / "b").write_bytes(len(written).to_bytes(8, "little") + written + data[8 + length :])
    with pytest.raises(BankError, match="does not match its checksum"):
        load_bank(tmp_path / "b")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_bank_with_a_number_that_is_none_is_refused(bank_parts, tmp_path, value, place):
    manifest, tensors = bank_parts
    block = list(tensors)[0 if place == "first" else -1]
    tensors[block].view(-1)[-1] = value
    path = write_bank(tmp_path / "b", manifest, tensors)
    with pytest.raises(BankError, match=r"holds NaN or infinity"):
        load_bank(path)
    with pytest.raises(BankError, match=r"holds NaN or infinity"):
        load_bank(path, tasks=["signs", "garments"])
    assert [check.name for check in check_bank(path) if not check.good] == ["numbers"]
