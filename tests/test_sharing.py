"""Recipes and banks go to a hub and come back, by the hub's own client against a hub on this machine."""

from __future__ import annotations

import logging
import re

import pytest
import torch

import atlas_engine as atlas
from atlas_engine.bank import save_bank
from atlas_engine.cli import main
from atlas_engine.errors import ConfigError, HubError, ModelError, RecipeError
from atlas_engine.result import AdaptResult, Estimate, Outcome, Verdict
from tests.exporting.models import make_recipe, small_bank
from tests.hub_server import TOKEN, HubServer, point_client_at

# the hub's client sends files in a way that its own HTTP library advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")

SENTENCE = "Adapting helped: 18 of 20 images held out are right, 12 before."


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub, and the client of this process pointed at it, without a token of its own."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "repositories").mkdir()
    with HubServer(tmp_path / "repositories") as server:
        point_client_at(server.address, tmp_path / "hub", monkeypatch)
        yield server


def make_result(recipe):
    return AdaptResult(
        recipe=recipe,
        outcome=Outcome.finished,
        reason="",
        history=(),
        seconds=1.0,
        verdict=Verdict("auto", True, SENTENCE),
        estimates=(Estimate("auto", 0.9, 0.699, 0.972, 20),),
    )


def test_a_result_goes_to_the_hub_with_its_card_and_comes_back_equal(hub, caplog):
    recipe = make_recipe("lpp")
    with caplog.at_level(logging.DEBUG):
        address = make_result(recipe).push_to_hub("jane/otters", token=TOKEN)
    assert address == f"{hub.address}/jane/otters"
    assert hub.private == {"jane/otters": True}
    assert TOKEN not in caplog.text
    assert atlas.load("jane/otters") == recipe
    card = (hub.folder / "jane" / "otters" / "README.md").read_text(encoding="utf-8")
    assert TOKEN not in card
    head = re.match(r"---\n(.*?)\n---\n", card, flags=re.DOTALL)[1].splitlines()
    assert {"library_name", "pipeline_tag", "license", "tags"} == {line.partition(":")[0] for line in head}
    for words in (
        SENTENCE,
        "auto 90% (70% to 97%, 20 images)",
        "otter, sea lion",
        'atlas.load("jane/otters")',
    ):
        assert words in card
    assert r"\</script\>" in card, "a class name is text, never a tag"
    assert "| task0 | not recorded |" in card


def test_a_second_push_replaces_the_first_and_keeps_its_visibility(hub):
    atlas.push(make_recipe(), "jane/otters", private=False, token=TOKEN)
    assert hub.private == {"jane/otters": False}
    assert atlas.load("jane/otters").method == "none"
    atlas.push(make_recipe("lpp"), "jane/otters", token=TOKEN)
    assert hub.private == {"jane/otters": False}
    assert atlas.load("jane/otters").method == "lpp"


def test_a_bank_goes_to_the_hub_and_comes_back_equal(hub, tmp_path):
    save_bank(small_bank(), tmp_path / "b.safetensors")
    atlas.push(tmp_path / "b.safetensors", "jane/bank", token=TOKEN)
    bank = atlas.load("jane/bank")
    assert bank.fingerprint == small_bank().fingerprint
    for block in bank.blocks:
        assert torch.equal(bank.vectors_of(block), small_bank().vectors_of(block))
    card = (hub.folder / "jane" / "bank" / "README.md").read_text(encoding="utf-8")
    assert "2 task vectors" in card
    assert "pipeline_tag" not in card


def test_the_card_of_a_recipe_of_the_bundled_model_tells_the_licences(hub, examples):
    recipe = atlas.Recipe.load(examples / "apples" / "recipe.atlas.safetensors")
    atlas.push(recipe, "jane/apples", token=TOKEN)
    card = (hub.folder / "jane" / "apples" / "README.md").read_text(encoding="utf-8")
    assert "| solar-cells | CC BY-NC-SA 4.0 |" in card
    assert "| clothing | CC0 |" in card
    assert "not recorded" not in card.split("## Task vectors")[1]


# ---- what goes wrong


def test_without_a_token_nothing_is_written_and_the_sentence_says_what_to_do(hub):
    with pytest.raises(HubError, match=r"does not let you write to 'jane/otters' \(401\)\. Log in with"):
        make_result(make_recipe()).push_to_hub("jane/otters")
    assert list(hub.folder.iterdir()) == []


def test_a_token_never_stands_in_an_error(hub, monkeypatch, caplog):
    with pytest.raises(HubError) as caught, caplog.at_level(logging.DEBUG):
        atlas.push(make_recipe(), "jane/otters", token="hf_wrong-token")
    told = [str(caught.value), caplog.text, str(caught.value.__cause__)]
    assert caught.value.__suppress_context__, "the client's error may show the request"
    assert not any("hf_wrong-token" in text for text in told)


@pytest.mark.parametrize("name", ["otters", "jane/", "jane/otters/more", "../etc", "jane/o t"])
def test_a_name_that_is_no_repository_is_refused_before_anything_is_sent(hub, name):
    with pytest.raises(ConfigError, match=r"Give it as owner/name"):
        atlas.push(make_recipe(), name, token=TOKEN)
    with pytest.raises(ConfigError, match=r"Give it as owner/name"):
        atlas.load(name)
    assert hub.requests == []


def test_a_repository_that_is_not_there_or_holds_something_else(hub):
    with pytest.raises(ModelError, match=r"'jane/nothing' cannot be fetched: .* Check the name; a private"):
        atlas.load("jane/nothing")
    (hub.folder / "jane" / "photos").mkdir(parents=True)
    (hub.folder / "jane" / "photos" / "README.md").write_text("photos")
    with pytest.raises(ModelError, match=r"holds neither recipe\.atlas\.safetensors nor bank\.safetensors"):
        atlas.load("jane/photos")


def test_a_damaged_recipe_on_the_hub_is_refused_by_its_sha256_and_by_its_content(hub):
    atlas.push(make_recipe(), "jane/otters", token=TOKEN)
    hub.announce("jane/otters", "recipe.atlas.safetensors", "a" * 64)
    with pytest.raises(ModelError, match="arrived with sha256"):
        atlas.load("jane/otters")
    hub.announced.clear()
    (hub.folder / "jane" / "otters" / "recipe.atlas.safetensors").write_bytes(b"not a recipe")
    with pytest.raises(RecipeError, match="is not a recipe that can be used"):
        atlas.load("jane/otters")


def test_what_was_fetched_is_read_without_the_hub_and_the_rest_is_one_sentence(hub, tmp_path, monkeypatch):
    recipe = make_recipe()
    atlas.push(recipe, "jane/otters", token=TOKEN)
    assert atlas.load("jane/otters") == recipe
    point_client_at("http://127.0.0.1:9", tmp_path / "hub", monkeypatch)  # nothing listens there
    assert atlas.load("jane/otters") == recipe
    with pytest.raises(HubError, match="'jane/seals' is not on this machine, and the model hub cannot be"):
        atlas.load("jane/seals")


# ---- the command line


def test_push_and_pull_from_the_command_line(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    recipe = make_recipe()
    recipe.save(tmp_path / "mine.atlas.safetensors")
    assert main(["push", str(tmp_path / "mine.atlas.safetensors"), "jane/otters", "--public"]) == 0
    assert capsys.readouterr().out == f"{hub.address}/jane/otters\n"
    assert hub.private == {"jane/otters": False}
    assert main(["pull", "jane/otters", "-o", str(tmp_path / "back.atlas.safetensors")]) == 0
    assert "Recipe(none for tiny" in capsys.readouterr().out
    assert atlas.Recipe.load(tmp_path / "back.atlas.safetensors") == recipe
    assert main(["pull", "jane/nothing", "-o", str(tmp_path / "no.safetensors")]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not (tmp_path / "no.safetensors").exists()
