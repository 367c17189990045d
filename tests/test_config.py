"""Settings check themselves when built; paths follow the environment and create nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from atlas_engine import config
from atlas_engine.config import Settings, describe, setting
from atlas_engine.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Sample(Settings):
    shots: int = setting(4, help="images per class", low=1, high=64)
    rate: float = setting(0.1, help="learning rate", low=0.0)
    head: str = setting("tip", help="adapter head", choices=("tip", "lpp", "none"))
    quiet: bool = setting(False, help="say nothing")
    seeds: tuple[int, ...] = setting((0, 1), help="seeds", low=0)
    limit: int | None = setting(None, help="stop after so many steps", low=1)
    folder: Path | None = setting(None, help="where to write")


def test_defaults_are_those_declared():
    assert Sample().shots == 4
    assert Sample(shots=64).shots == 64


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"shots": 0}, "Sample.shots is 0 but must be 1 to 64."),
        ({"shots": 65}, "Sample.shots is 65 but must be 1 to 64."),
        ({"shots": 2.0}, "Sample.shots is 2.0 but must be a whole number."),
        ({"shots": True}, "Sample.shots is True but must be a whole number."),
        ({"shots": None}, "Sample.shots is None but must be a whole number."),
        ({"rate": -1}, "Sample.rate is -1.0 but must be at least 0.0."),
        ({"rate": float("nan")}, "Sample.rate is nan but must be a finite number."),
        ({"rate": float("inf")}, "Sample.rate is inf but must be a finite number."),
        ({"quiet": 1}, "Sample.quiet is 1 but must be True or False."),
        ({"head": "tipp"}, "Sample.head 'tipp' is not known. Did you mean 'tip'? Known: lpp, none, tip."),
        ({"seeds": [1]}, "Sample.seeds is [1] but must be a tuple, each item a whole number."),
        ({"seeds": (1, -1)}, "Sample.seeds is -1 but must be at least 0."),
        ({"limit": 0}, "Sample.limit is 0 but must be at least 1."),
        ({"folder": "x"}, "Sample.folder is 'x' but must be a path."),
    ],
)
def test_a_bad_value_is_refused_with_its_name_value_and_rule(values, sentence):
    with pytest.raises(ConfigError) as caught:
        Sample(**values)
    assert str(caught.value) == sentence


def test_a_whole_number_serves_as_a_float_and_becomes_one():
    rate = Sample(rate=1).rate
    assert rate == 1.0
    assert type(rate) is float


def test_settings_are_frozen_and_a_replacement_is_checked_again():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sample().shots = 5
    assert dataclasses.replace(Sample(), shots=5).shots == 5
    with pytest.raises(ConfigError):
        dataclasses.replace(Sample(), shots=500)


def test_settings_survive_the_way_through_json():
    sample = Sample(seeds=(3, 4), folder=Path("a/b"), head="lpp")
    assert Sample.from_dict(json.loads(json.dumps(sample.as_dict()))) == sample


def test_from_dict_offers_the_nearest_name():
    with pytest.raises(ConfigError, match=r"Sample setting 'shot' is not known\. Did you mean 'shots'"):
        Sample.from_dict({"shot": 2})


def test_describe_tells_all_that_a_flag_or_slider_needs():
    shots, rate, head, _, seeds, limit, _ = describe(Sample)
    assert (shots.name, shots.default, shots.help, shots.range) == ("shots", 4, "images per class", "1 to 64")
    assert rate.range == "at least 0.0"
    assert head.range == "tip, lpp or none"
    assert seeds.many
    assert seeds.item_type is int
    assert limit.optional
    assert limit.item_type is int


def test_a_field_without_help_is_a_mistake_found_at_once():
    @dataclass(frozen=True, kw_only=True)
    class Careless(Settings):
        shots: int = 4

    with pytest.raises(TypeError, match="field 'shots' must be declared with setting"):
        Careless()


def test_paths_follow_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path / "assets"))
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    assert config.assets_folder() == tmp_path / "assets"
    assert config.cache_folder() == tmp_path / "cache"
    assert not list(tmp_path.iterdir())


def test_paths_without_the_environment_are_the_repository_and_the_user_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("ATLAS_ASSETS", raising=False)
    monkeypatch.setenv("ATLAS_CACHE", "")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.assets_folder() == Path(config.__file__).parent.parent / "assets"
    assert config.cache_folder() == tmp_path / "atlas-studio"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/void")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert config.cache_folder() == tmp_path / "home" / ".cache" / "atlas-studio"


def test_the_version_is_that_of_the_project_file():
    project = (Path(config.__file__).parent.parent / "pyproject.toml").read_text()
    assert f'version = "{config.software_version()}"' in project


def test_importing_config_imports_no_torch():
    code = "import atlas_engine.config, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
