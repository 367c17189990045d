"""The lines to copy make the very result again: run as they stand, with the bundled model and another."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import zipfile
from pathlib import Path

import gradio as gr
import pytest

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import adapt_few_shot
from app.handlers.settings import FewShotSettings, UnlabelledSettings
from app.handlers.takeaway import (
    SHIPPED,
    ModelOrigin,
    export_recipe,
    load_recipe,
    origin_of,
    python_code,
    shell_commands,
)
from app.limits import LIMITS
from app.session import CurrentModel, Engines
from app.tabs.result_state import ResultState
from app.tabs.takeaway import TakePanel
from atlas_engine import library
from atlas_engine.cli import main as atlas_command
from tests.standins import ARCH, stand_in

QUICK = FewShotSettings(method="atlas+text-probe", steps=2, lr=0.0123456789, seed=3)


@pytest.fixture
def desk(squares, tmp_path, monkeypatch):
    """A folder of one's own with the pictures in it, where lines are typed."""
    shutil.copytree(squares / "teach", tmp_path / "my_pictures")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(lines):
    """Run the lines of a terminal, comments left out; the file that the first writes."""
    for line in lines.splitlines():
        if not line.startswith("#"):
            assert atlas_command(shlex.split(line)[1:]) == 0, line
    (written,) = Path().glob("*.atlas.safetensors")
    return written


def test_typed_and_run_in_python_both_make_the_recipe_of_the_page(engine, few_shot_request, desk):
    *_, last = adapt_few_shot(engine, few_shot_request, QUICK)
    saved = last.result
    assert origin_of(engine, bundled=engine.backbone.name) == SHIPPED
    file = typed(shell_commands(saved))
    assert atlas.Recipe.load(file) == saved.recipe
    shutil.copy(next((desk / "my_pictures").rglob("*.png")), "new.jpg")
    code = python_code(saved)
    exec(code, {})
    assert atlas.Recipe.load(file) == saved.recipe


def test_with_a_model_and_bank_of_ones_own_they_name_both_and_no_folder(
    few_shot_request, desk, tmp_path_factory
):
    offer = stand_in(tmp_path_factory.mktemp("hub"))
    *_, ready = library.prepare(offer, cache=False)
    *_, last = adapt_few_shot(ready.engine, few_shot_request, QUICK)
    origin = origin_of(ready.engine, bundled="bundled")
    assert origin == ModelOrigin(f"{ARCH}@base.safetensors")
    shutil.copy(offer.model.partition("@")[2], desk / "base.safetensors")
    shutil.copy(ready.engine.bank_path, desk / "bank.safetensors")
    lines = shell_commands(last.result, origin=origin)
    assert "tmp" not in lines
    again = atlas.Recipe.load(typed(lines))
    assert dataclasses.replace(again, model=last.result.recipe.model) == last.result.recipe
    assert f"atlas.open('{ARCH}@base.safetensors', bank=\"bank.safetensors\")" in python_code(
        last.result, origin=origin
    )


def test_with_real_clip_the_lines_build_its_bank_as_the_page_did(saved):
    origin = ModelOrigin("ViT-B-32/openai", "tanganke-b32", "int4")
    first, second, _ = shell_commands(saved, origin=origin).splitlines()
    assert first == "atlas bank import tanganke-b32 --storage int4 -o bank.safetensors"
    assert "--model ViT-B-32/openai --bank bank.safetensors" in second
    code = python_code(saved, origin=origin)
    assert "*_, ready = atlas.prepare('ViT-B-32/openai')" in code
    assert "with ready.engine as engine:" in code
    assert origin.storage == library.READY_STORAGE
    assert origin.public_bank in {offer.file.partition(".")[0] for offer in atlas.available_models()}


def test_the_model_is_exported_as_one_file_and_a_wrong_wish_is_a_sentence(small, saved, tmp_path):
    onnx_file = Path(export_recipe(small, saved.recipe, tmp_path, format="onnx"))
    assert onnx_file.suffix == ".onnx"
    assert onnx_file.stat().st_size > 0
    archive = Path(export_recipe(small, saved.recipe, tmp_path, format="openclip"))
    assert "classes.json" in zipfile.ZipFile(archive).namelist()
    with pytest.raises(atlas.AtlasError, match="format 'oxxn' is not known"):
        export_recipe(small, saved.recipe, tmp_path, format="oxxn")


def test_of_a_run_that_was_stopped_the_lines_say_that_it_cannot_be_repeated(saved):
    stopped = dataclasses.replace(saved, stopped=True)
    for lines in (python_code, shell_commands):
        assert text.takeaway.STOPPED_COMMENT in lines(stopped)
        assert text.takeaway.STOPPED_COMMENT not in lines(saved)


def test_a_recipe_of_too_many_classes_is_refused_before_any_name_of_it_is_read(small, saved, tmp_path):
    read = small._cached_head.cache_info().misses
    names = tuple(f"thing {number}" for number in range(LIMITS.classes + 1))
    dataclasses.replace(saved.recipe, classes=names).save(tmp_path / "many.atlas.safetensors")
    with pytest.raises(atlas.AtlasError) as caught:
        load_recipe(small, str(tmp_path / "many.atlas.safetensors"), [])
    assert str(caught.value) == text.takeaway.many_recipe_classes("many.atlas.safetensors", len(names))
    assert small._cached_head.cache_info().misses == read
    dataclasses.replace(saved.recipe, classes=names[1:]).save(tmp_path / "most.atlas.safetensors")
    brought, _ = load_recipe(small, str(tmp_path / "most.atlas.safetensors"), [])
    assert len(brought.recipe.classes) == LIMITS.classes


@pytest.mark.parametrize(("defaults", "key"), [(FewShotSettings(), "class"), (UnlabelledSettings(), "word")])
def test_the_link_of_a_recipe_brought_along_opens_the_tab_it_was_brought_to(small, saved, defaults, key):
    current = CurrentModel(Engines(small, name="small"), lambda: None)
    with gr.Blocks():
        state = ResultState.create(None, name="shows", expired="gone")
        panel = TakePanel.create(current, state, own_bank=False, defaults=defaults)
    brought = dataclasses.replace(saved, settings=None)
    shown = panel.show(small, "small", brought)[panel.code]
    assert f"href='?{key}=" in shown
    assert "model=" not in shown, "it is the model that the page opens on"
    assert "model=ViT-B-32%2Fopenai" in panel.show(small, "ViT-B-32/openai", brought)[panel.code]
