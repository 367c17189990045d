"""Every command keeps the promises of the command line: help, exit codes, one-line errors, lazy imports."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib import metadata

import click
import pytest

from app.commands import COMMANDS as APP_COMMANDS
from atlas_engine.cli import main
from atlas_engine.cli.main import (
    COMMANDS,
    ENTRY_POINTS,
    STUDIES,
    CommandRow,
    GroupRow,
    LazyGroup,
    installed_commands,
)
from atlas_engine.cli.options import command
from atlas_engine.cli.output import emit
from atlas_engine.config import software_version
from atlas_engine.errors import SupportError
from studies.cli import COMMANDS as STUDY_COMMANDS
from tests.drawn import ROOT

TABLE = {**COMMANDS, **STUDY_COMMANDS}
LEAVES = [words for words, row in TABLE.items() if isinstance(row, CommandRow)]


def load(words):
    command = metadata.EntryPoint(words, TABLE[words].target, ENTRY_POINTS).load()
    assert isinstance(command, click.Command)
    return command


def run_python(code, *, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )


# ---- help


@pytest.mark.parametrize("words", ["", *TABLE])
def test_every_help_ends_with_exactly_two_examples(words, capsys):
    assert main([*words.split(), "--help"]) == 0
    printed = capsys.readouterr()
    *_, tail = printed.out.rstrip().rpartition("Examples:\n")
    examples = tail.splitlines()
    assert len(examples) == 2
    assert all(example.startswith(f"  atlas {words}".rstrip()) for example in examples)
    assert printed.err == ""


@pytest.mark.parametrize("words", LEAVES)
def test_the_examples_of_a_command_are_understood_by_it(words):
    command = load(words)
    for example in command.examples:
        assert example.startswith(f"atlas {words}")
        typed = shlex.split(example.removeprefix(f"atlas {words}"))
        with command.make_context(words, typed):
            pass


@pytest.mark.parametrize("words", LEAVES)
def test_the_summary_in_the_table_is_the_first_line_of_the_help(words):
    assert load(words).help.splitlines()[0] == TABLE[words].summary


def test_the_examples_of_groups_name_commands_that_exist():
    groups = [row for row in TABLE.values() if isinstance(row, GroupRow)]
    for example in [example for row in groups for example in row.examples]:
        assert any(f"{example} ".startswith(f"atlas {words} ") for words in LEAVES), example


def test_every_group_of_the_table_has_a_row_of_its_own():
    assert {words.rpartition(" ")[0] for words in LEAVES} - {""} == set(TABLE) - set(LEAVES)


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_takes_json(words):
    assert any("--json" in param.opts for param in load(words).params)


def test_help_and_version_import_neither_torch_nor_the_commands():
    done = run_python(
        "import sys\n"
        "from atlas_engine.cli import main\n"
        "for words in (['--help'], ['cache', '--help'], ['eval', '--help'], ['--version']):\n"
        "    assert main(words) == 0\n"
        "heavy = {'torch', 'numpy', 'diskcache', 'atlas_engine.cli.system', 'studies.cli.few_shot'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"atlas {software_version()}\n")


def test_a_command_does_not_import_its_neighbours_or_extensions():
    done = run_python(
        "import sys\n"
        "from atlas_engine.cli import main\n"
        "assert main(['cache', 'path']) == 0\n"
        "others = {'torch', 'atlas_engine.cli.bank', 'atlas_engine.cli.predict', 'studies'}\n"
        "sys.exit(str(others & set(sys.modules)) if others & set(sys.modules) else 0)"
    )
    assert done.returncode == 0, done.stderr


# ---- words that are wrong


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["doctr"], "command 'doctr' is not known. Did you mean 'doctor'?"),
        (["cache", "sise"], "'atlas cache' command 'sise' is not known. Did you mean 'size'?"),
        (["cache"], "'atlas cache' needs one of: path, size, clear. See: atlas cache --help"),
        (["--verison"], "No such option '--verison'. Did you mean '--version'?"),
        (
            ["doctor", "--jsno"],
            "No such option '--jsno'. Did you mean '--json'? See: atlas doctor --help",
        ),
        (["doctor", "\x1b[2J\nrm"], "unexpected extra argument (\ufffd[2J rm). See: atlas doctor --help"),
        (["bench", "--json", "no/such/folder/x.json"], "cannot be written"),
        (["bench", "--json"], "Option '--json' requires an argument."),
        (["bench", "--json", "--list"], "Option '--json' requires an argument."),
        (["predict"], "Missing argument 'IMAGE...'"),
        (["predict", "a.jpg"], "give --classes or --recipe, one of the two."),
        (["predict", "a.jpg", "--classes", "a,b", "--recipe", "r"], "--classes or --recipe, one of the two"),
    ],
)
def test_misuse_is_one_line_on_stderr_and_exit_code_2(words, sentence, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("atlas: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_no_words_at_all_show_the_help_on_stderr(capsys):
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Examples:" in printed.err


# ---- commands that fail: small real ones, reached through a real table


def failing(error: BaseException) -> click.Command:
    @command("atlas x", "atlas x")
    def fail() -> None:
        """A command for this test."""
        emit("some data")
        raise error

    return fail


TOO_FEW = failing(SupportError("class 'seal\n' has 1 image but shots=4. Add 3 images, or pass shots=1."))
BUG = failing(ZeroDivisionError("division by zero"))
STOPPED = failing(KeyboardInterrupt())
WRONG = failing(click.UsageError("give --classes or --recipe, not both."))
BAD = failing(click.exceptions.Exit(1))


def run_failing(name: str) -> int:
    table = {"x": CommandRow(f"{__name__}:{name}", "A command for this test.")}
    return main(["x"], command=LazyGroup(table, GroupRow("A group for this test.", ("atlas x", "atlas x"))))


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("TOO_FEW", 1, "atlas: class 'seal ' has 1 image but shots=4. Add 3 images, or pass shots=1.\n"),
        (
            "BUG",
            1,
            "atlas: unexpected ZeroDivisionError: division by zero. This is a bug; ATLAS_DEBUG=1 shows",
        ),
        ("STOPPED", 130, "atlas: stopped.\n"),
        ("WRONG", 2, "atlas: give --classes or --recipe, not both. See: atlas x --help\n"),
    ],
)
def test_a_failure_is_one_line_and_its_exit_code(name, code, line, capsys, monkeypatch):
    monkeypatch.delenv("ATLAS_DEBUG", raising=False)
    assert run_failing(name) == code
    printed = capsys.readouterr()
    assert printed.out == "some data\n"
    assert printed.err.startswith(line)
    assert printed.err.count("\n") == 1


def test_a_command_may_fail_by_what_it_printed(capsys):
    assert run_failing("BAD") == 1
    assert capsys.readouterr() == ("some data\n", "")


def test_debugging_shows_the_traceback_too(capsys, monkeypatch):
    monkeypatch.setenv("ATLAS_DEBUG", "1")
    assert run_failing("TOO_FEW") == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.splitlines()[-1].startswith("atlas: class 'seal ' has")


def test_a_row_that_leads_to_something_else_is_a_bug(capsys):
    assert run_failing("LEAVES") == 1
    assert "is list, not a click command" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_drama():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-W", "error", "-m", "atlas_engine.cli", "--help"]
    done = subprocess.run(
        command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=300
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""


# ---- commands of other packages


@pytest.fixture(scope="module")
def built_metadata(tmp_path_factory):
    """A folder with the metadata that an installation of this project would have, built by setuptools."""
    folder = tmp_path_factory.mktemp("metadata")
    build = "import sys, setuptools; sys.argv[1:] = ['-q', 'egg_info', '--egg-base', sys.argv[1]]"
    command = [sys.executable, "-c", f"{build}; setuptools.setup()", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_an_installation_has_the_commands_of_the_studies_and_the_app(built_metadata, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(built_metadata)
    monkeypatch.setattr(sys.modules["atlas_engine.cli.main"], "PYPROJECT", tmp_path / "no clone")
    entries = metadata.entry_points(group=ENTRY_POINTS)
    assert {entry.dist.metadata["Name"] for entry in entries} == {"atlas-studio"}
    assert installed_commands() == {**APP_COMMANDS, **STUDY_COMMANDS}


def test_so_has_a_clone_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    assert installed_commands() == {**APP_COMMANDS, **STUDY_COMMANDS}


def test_where_nothing_is_declared_there_is_nothing_more(monkeypatch, tmp_path):
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    monkeypatch.setattr(sys.modules["atlas_engine.cli.main"], "PYPROJECT", tmp_path / "no clone")
    assert installed_commands() == {}


@pytest.fixture(scope="module")
def without_studies(tmp_path_factory):
    """Run `atlas …` from a copy of the repository that has no studies."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "atlas_engine", copy / "atlas_engine", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", copy)
    # an editable installation of the project would find the studies of its own clone
    lines = "import sys; sys.meta_path = [it for it in sys.meta_path if 'editable' not in str(it)]; "
    lines += "from atlas_engine.cli import main; "
    return lambda *words: run_python(f"{lines}sys.exit(main({list(words)}))", cwd=copy)


def test_without_the_studies_help_has_the_other_commands(without_studies):
    for words, ours, theirs in (
        ([], {"adapt", "bank", "predict"}, {"eval", "bench", "model"}),
        (["bank"], {"list", "import"}, {"dummy", "sets"}),
    ):
        done = without_studies(*words, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
        assert ours <= listed
        assert not theirs & listed


@pytest.mark.parametrize("words", STUDIES)
def test_without_the_studies_their_commands_say_so_in_one_sentence(words, without_studies):
    done = without_studies(*words.split(), "few-shot", "photos")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"'atlas {words}' belongs to the studies, which are not installed." in done.stderr


def test_the_commands_that_belong_to_the_studies_are_those_they_add():
    first = {words for words in STUDY_COMMANDS if words.rpartition(" ")[0] not in STUDY_COMMANDS}
    assert first == set(STUDIES)


def test_an_extension_that_lacks_a_package_does_not_vanish(monkeypatch, tmp_path):
    (tmp_path / "broken_extension.py").write_text("import a_package_that_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)
    entry = metadata.EntryPoint("broken", "broken_extension:COMMANDS", ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: (entry,))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_nobody_has"):
        installed_commands()


def test_a_command_of_the_engine_cannot_be_replaced_by_an_extension(capsys):
    other = {"x": CommandRow("nowhere:nothing", "Another."), "y": CommandRow("nowhere:more", "More.")}
    table = {"x": CommandRow(f"{__name__}:BAD", "Ours.")}
    group = LazyGroup(table, GroupRow("A group.", ("atlas x", "atlas y")), extensions=lambda: other)
    assert main(["x"], command=group) == 1
    assert main(["--help"], command=group) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed.index("  x  Ours.") + 1 == listed.index("  y  More.")
