"""Options: flags made from config classes, several values of one flag, and types that refuse early."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from atlas_engine.cli import main
from atlas_engine.cli.options import (
    PATH,
    SeveralValues,
    command,
    distinct_names,
    json_file_option,
    method_option,
    settings,
)
from atlas_engine.cli.output import emit_json
from atlas_engine.config import Settings, setting
from atlas_engine.errors import EvalError


@dataclass(frozen=True, kw_only=True)
class Sample(Settings):
    shots: int = setting(4, help="images per class", low=1, high=64)
    learning_rate: float = setting(0.1, help="step, 100 % by hand", low=0.0)
    head: str = setting("tip", help="adapter head", choices=("tip", "lpp", "none"))
    quiet: bool = setting(False, help="say nothing")
    seeds: tuple[int, ...] = setting((0, 1), help="seeds")
    steps: int | None = setting(300, help="steps", low=1)
    where: Path | None = setting(None, help="where to write")


@command("atlas s", "atlas s --shots 2")
@settings(Sample, name="sample")
def print_settings(*, sample: Sample) -> None:
    """Print the settings."""
    emit_json(sample.as_dict())


@dataclass(frozen=True, kw_only=True)
class LongSample(Sample):
    rate: float | None = setting(None, help="rate", low=0.0, unset="the method's own")


@command("atlas l", "atlas l --rate 2")
@settings(LongSample)
def print_long_settings(*, config: LongSample) -> None:
    """Print the settings."""
    emit_json(config.as_dict())


def test_the_help_has_a_classs_own_flags_first_and_says_what_none_stands_for(capsys):
    assert main(["--help"], command=print_long_settings) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "rate (at least 0.0; default none, the method's own)" in page
    assert page.index("--rate") < page.index("--shots")


def run(typed: str) -> int:
    return main(typed.split(), command=print_settings)


def test_without_flags_the_defaults_stand(capsys):
    assert run("") == 0
    assert json.loads(capsys.readouterr().out) == Sample().as_dict()


def test_every_kind_of_setting_has_its_flag(capsys):
    typed = "--shots 2 --learning-rate 1e-3 --head none --quiet --seeds 3,4,5 --steps none --where a/b"
    assert run(typed) == 0
    expected = Sample(
        shots=2, learning_rate=1e-3, head="none", quiet=True, seeds=(3, 4, 5), steps=None, where=Path("a/b")
    )
    assert json.loads(capsys.readouterr().out) == expected.as_dict()
    assert run("--no-quiet") == 0


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("--shots 0", "Sample.shots is 0 but must be 1 to 64."),
        ("--shots four", "Invalid value for '--shots': 'four' is not a valid integer."),
        ("--seeds 1,x", "Invalid value for '--seeds': 'x' is not a valid integer."),
        ("--head tipp", "Sample.head 'tipp' is not known. Did you mean 'tip'?"),
        ("--learning-rate nan", "Sample.learning_rate is nan but must be a finite number."),
        ("--shot 3", "No such option '--shot'. (Did you mean one of: '--shots', '--steps'?)"),
        ("--shots --quiet", "Option '--shots' requires an argument."),
        ("--shots --no-quiet", "Option '--shots' requires an argument."),
    ],
)
def test_a_bad_flag_is_misuse_with_the_rule(typed, sentence, capsys):
    assert run(typed) == 2
    assert sentence in capsys.readouterr().err


def test_the_help_of_a_flag_tells_its_range_and_default(capsys):
    assert run("--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--shots N images per class (1 to 64; default 4)" in text
    assert "--learning-rate X step, 100 % by hand (at least 0.0; default 0.1)" in text
    assert "--head tip|lpp|none adapter head (default tip)" in text
    assert "--quiet / --no-quiet say nothing (default off)" in text
    assert "--seeds N,N seeds (default 0,1)" in text


@command("atlas q", "atlas q")
@click.argument("folder")
@click.option("--query", cls=SeveralValues, multiple=True, type=PATH)
@click.option("--to", multiple=True)
@click.option("--flag", is_flag=True)
def print_values(*, folder: str, query: tuple[Path, ...], to: tuple[str, ...], flag: bool) -> None:
    """Print what was parsed."""
    emit_json([folder, [str(path) for path in query], to, flag])


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("d", ["d", [], [], False]),
        ("d --query a b --flag", ["d", ["a", "b"], [], True]),
        ("d --flag --query a b", ["d", ["a", "b"], [], True]),
        ("--query a --query b c --to x d", ["d", ["a", "b", "c"], ["x"], False]),
        ("--to folder --to -1 d", ["d", [], ["folder", "-1"], False]),
        ("--query a b -- d", ["d", ["a", "b"], [], False]),
        ("--query=a d", ["d", ["a"], [], False]),
    ],
)
def test_several_values_end_at_the_next_flag(typed, parsed, capsys):
    assert main(typed.split(), command=print_values) == 0
    assert json.loads(capsys.readouterr().out) == parsed


def test_several_values_are_at_least_one(capsys):
    for typed in ("d --query", "d --query --flag"):
        assert main(typed.split(), command=print_values) == 2
        assert "Option '--query' requires an argument." in capsys.readouterr().err


def test_a_json_file_is_a_new_file_in_a_folder_that_exists(tmp_path):
    @command("atlas x", "atlas x")
    @json_file_option
    def write(*, json_file: Path | None) -> None:
        """A command for this test."""

    with write.make_context("x", ["--json", str(tmp_path / "new.json")]) as context:
        assert context.params["json_file"] == tmp_path / "new.json"
    for bad in (tmp_path, tmp_path / "no" / "x.json"):
        with pytest.raises(click.BadParameter, match="folder that exists"):
            write.make_context("x", ["--json", str(bad)])


def test_the_help_of_a_method_names_every_row_of_its_table():
    @command("atlas x", "atlas x")
    @method_option(["zero-shot", "auto", "tip"], note="tip is fast")
    def adapt(*, method: str) -> None:
        """A command for this test."""

    (option,) = adapt.params
    assert option.help == "auto (default), zero-shot, tip; tip is fast"
    assert option.default == "auto"


def test_a_name_has_as_much_of_the_path_as_it_needs(tmp_path):
    paths = [tmp_path / "pacs" / "photo", tmp_path / "office" / "photo", tmp_path / "pets"]
    assert distinct_names(paths) == ["pacs/photo", "office/photo", "pets"]
    assert distinct_names(paths[:1]) == ["photo"]
    with pytest.raises(EvalError, match="photo is given twice"):
        distinct_names([paths[0], tmp_path / "office" / ".." / "pacs" / "photo"])
