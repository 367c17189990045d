"""The frame keeps its promises for every command: help, exit codes, one-line errors, flags from configs."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from atlas_engine.cli.command import Command, MisuseError, Row
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.frame import command_parser
from atlas_engine.cli.table import EXAMPLES, GROUPS, ROWS

from atlas_engine.cli import main
from atlas_engine.cli.output import add_json_file, emit, emit_json, write_json
from atlas_engine.cli.progress import Progress
from atlas_engine.config import Settings, setting, software_version
from atlas_engine.errors import SupportError
from atlas_engine.files import human_nbytes

TITLES = [row.title for row in ROWS]


def start(*words: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-W", "error", "-m", "atlas_engine.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


# Help.


@pytest.mark.parametrize("words", [["atlas"], *(["atlas", noun] for noun in GROUPS), *map(str.split, TITLES)])
def test_every_help_ends_with_exactly_two_examples(words, capsys):
    assert main([*words[1:], "--help"]) == 0
    printed = capsys.readouterr()
    *_, tail = printed.out.rstrip().rpartition("examples:\n")
    examples = tail.splitlines()
    assert len(examples) == 2
    assert all(example.startswith("  " + " ".join(words[:2])) or words == ["atlas"] for example in examples)
    assert printed.err == ""


@pytest.mark.parametrize("row", ROWS, ids=TITLES)
def test_the_examples_of_a_command_are_understood_by_it(row):
    command = row.load()
    for example in command.examples:
        assert example.startswith(row.title)
        command_parser(row, command).parse_args(shlex.split(example.removeprefix(row.title)))


def test_the_examples_of_groups_name_commands_that_exist():
    for example in [*EXAMPLES, *(example for group in GROUPS.values() for example in group.examples)]:
        assert any(f"{example} ".startswith(f"{title} ") for title in TITLES), example


def test_every_noun_with_verbs_has_a_group_and_no_command_appears_twice():
    assert {row.noun for row in ROWS if row.verb} == set(GROUPS)
    assert len(set(TITLES)) == len(TITLES)


def test_every_command_takes_json(capsys):
    for row in ROWS:
        main([*row.title.split()[1:], "--help"])
        assert "--json" in capsys.readouterr().out, row.title


def test_help_and_version_import_neither_torch_nor_the_commands():
    code = "\n".join(
        [
            "import sys",
            "from atlas_engine.cli import main",
            "assert main(['--help']) == 0 and main(['cache', '--help']) == 0 and main(['--version']) == 0",
            "heavy = {'torch', 'numpy', 'diskcache', 'atlas_engine.cli.doctor'} & set(sys.modules)",
            "sys.exit(str(heavy) if heavy else 0)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"atlas {software_version()}\n")


# Words that are wrong.


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["doctr"], "command 'doctr' is not known. Did you mean 'doctor'?"),
        (["cache", "sise"], "'atlas cache' command 'sise' is not known. Did you mean 'size'?"),
        (["cache"], "'atlas cache' needs one of: path, size, clear."),
        (
            ["doctor", "--jsno"],
            "unrecognized arguments: --jsno. Did you mean --json? See: atlas doctor --help",
        ),
        (["doctor", "\x1b[2J\nrm"], "unrecognized arguments: \ufffd[2J rm."),
        (["bench", "--json", "no/such/folder/x.json"], "cannot be written"),
        (["bench", "--json"], "expected one argument"),
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
    assert "examples:" in printed.err


# Commands that fail. Small real commands, reached through real rows.


def failing(error: BaseException) -> Command:
    def run(args):
        emit("some data")
        raise error

    return Command(lambda parser: None, run, ("atlas x", "atlas x"))


TOO_FEW = failing(SupportError("class 'seal\n' has 1 image but shots=4. Add 3 images, or pass shots=1."))
BUG = failing(ZeroDivisionError("division by zero"))
STOPPED = failing(KeyboardInterrupt())
WRONG = failing(MisuseError("give --classes or --recipe, not both."))


def run_row(name: str) -> int:
    return main(["x"], rows=[Row("x", "", "A command for this test.", f"{__name__}:{name}")])


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
        ("WRONG", 2, "atlas: give --classes or --recipe, not both.\n"),
    ],
)
def test_a_failure_is_one_line_and_its_exit_code(name, code, line, capsys, monkeypatch):
    monkeypatch.delenv("ATLAS_DEBUG", raising=False)
    assert run_row(name) == code
    printed = capsys.readouterr()
    assert printed.out == "some data\n"
    assert printed.err.startswith(line)
    assert printed.err.count("\n") == 1


def test_debugging_shows_the_traceback_too(capsys, monkeypatch):
    monkeypatch.setenv("ATLAS_DEBUG", "1")
    assert run_row("TOO_FEW") == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.splitlines()[-1].startswith("atlas: class 'seal ' has")


def test_a_row_that_leads_to_something_else_is_a_bug(capsys):
    assert run_row("TITLES") == 1
    assert "is list, not a Command" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_drama():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-W", "error", "-m", "atlas_engine.cli", "--help"]
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=300
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""


# Flags from configs.


@dataclass(frozen=True, kw_only=True)
class Sample(Settings):
    shots: int = setting(4, help="images per class", low=1, high=64)
    learning_rate: float = setting(0.1, help="step, 100 % by hand", low=0.0)
    head: str = setting("tip", help="adapter head", choices=("tip", "lpp", "none"))
    quiet: bool = setting(False, help="say nothing")
    seeds: tuple[int, ...] = setting((0, 1), help="seeds")
    steps: int | None = setting(300, help="steps", low=1)
    where: Path | None = setting(None, help="where to write")


def print_settings(args) -> int:
    emit_json(settings_from(args, Sample).as_dict())
    return 0


SAMPLE = Command(
    lambda parser: add_settings(parser, Sample), print_settings, ("atlas s", "atlas s --shots 2")
)
SAMPLE_ROWS = [Row("s", "", "Print the settings.", f"{__name__}:SAMPLE")]


def test_without_flags_the_defaults_stand(capsys):
    assert main(["s"], rows=SAMPLE_ROWS) == 0
    assert json.loads(capsys.readouterr().out) == Sample().as_dict()


def test_every_kind_of_setting_has_its_flag(capsys):
    typed = "--shots 2 --learning-rate 1e-3 --head none --quiet --seeds 3,4,5 --steps none --where a/b"
    assert main(["s", *typed.split()], rows=SAMPLE_ROWS) == 0
    expected = Sample(
        shots=2, learning_rate=1e-3, head="none", quiet=True, seeds=(3, 4, 5), steps=None, where=Path("a/b")
    )
    assert json.loads(capsys.readouterr().out) == expected.as_dict()
    assert main(["s", "--no-quiet"], rows=SAMPLE_ROWS) == 0


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("--shots 0", "Sample.shots is 0 but must be 1 to 64."),
        ("--shots four", "argument --shots: invalid int value: 'four'."),
        ("--seeds 1,x", "argument --seeds: invalid int value: '1,x'."),
        ("--head tipp", "Sample.head 'tipp' is not known. Did you mean 'tip'?"),
        ("--learning-rate nan", "Sample.learning_rate is nan but must be a finite number."),
        ("--shot 3", "unrecognized arguments: --shot 3."),
    ],
)
def test_a_bad_flag_is_misuse_with_the_rule(typed, sentence, capsys):
    assert main(["s", *typed.split()], rows=SAMPLE_ROWS) == 2
    assert sentence in capsys.readouterr().err


def test_the_help_of_a_flag_tells_its_range_and_default(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["s", "--help"], rows=SAMPLE_ROWS)
    text = " ".join(capsys.readouterr().out.split())
    assert "--shots N images per class (1 to 64; default 4)" in text
    assert "--learning-rate X step, 100 % by hand (at least 0.0; default 0.1)" in text
    assert "--head tip|lpp|none adapter head (default tip)" in text
    assert "--seeds N,N seeds (default 0,1)" in text


# Output.


def test_json_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "result.json"
    write_json(target, {"accuracy": 0.5})
    assert json.loads(target.read_text()) == {"accuracy": 0.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(target, {"accuracy": float("nan")})
    (tmp_path / "folder").mkdir()
    with pytest.raises(MisuseError, match="cannot write"):
        write_json(tmp_path / "folder", {})
    assert json.loads(target.read_text()) == {"accuracy": 0.5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "result.json"]


def test_json_file_flag_takes_a_new_file_in_a_folder_that_exists(tmp_path):
    command = Command(add_json_file, lambda args: 0, ("atlas x", "atlas x"))
    parser = command_parser(SAMPLE_ROWS[0], command)
    assert parser.parse_args(["--json", str(tmp_path / "new.json")]).json == tmp_path / "new.json"
    for bad in (tmp_path, tmp_path / "no" / "x.json"):
        with pytest.raises(MisuseError, match="folder that exists"):
            parser.parse_args(["--json", str(bad)])


def test_bytes_read_well():
    sizes = [0, 1023, 1024, 1_572_864, 5 * 2**30, 3000 * 2**30]
    assert [human_nbytes(size) for size in sizes] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "5.0 GiB",
        "3000.0 GiB",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_progress_tells_count_rate_and_time_left():
    clock = Clock()
    progress = Progress(120, "reading", stream=io.StringIO(), clock=clock)
    assert progress.line() == "reading 0/120"
    clock.seconds = 2.0
    progress.advance(30)
    assert progress.line("loss 0.5\x1b") == "reading 30/120, 15.0/s, 6 s left, loss 0.5\ufffd"
    clock.seconds = 60.0
    assert progress.line() == "reading 30/120, 2.0 s each, 3 min 0 s left"


def test_progress_in_a_log_is_a_line_every_ten_seconds():
    clock, stream = Clock(), io.StringIO()
    with Progress(None, "step", stream=stream, clock=clock) as progress:
        for _ in range(350):
            clock.seconds += 0.1
            progress.advance()
    assert len(stream.getvalue().splitlines()) == 3
    assert "\r" not in stream.getvalue()


def test_progress_on_a_terminal_redraws_one_line_and_wipes_it_at_the_end():
    clock, stream = Clock(), Terminal()
    with Progress(3, "step", stream=stream, clock=clock) as progress:
        for _ in range(3):
            clock.seconds += 1
            progress.advance()
    drawn = stream.getvalue()
    assert drawn.count("\r") == 5
    assert "\n" not in drawn
    assert drawn.split("\r")[-2].strip() == ""


def test_short_work_leaves_no_trace():
    stream = Terminal()
    with Progress(3, "step", stream=stream, clock=Clock()) as progress:
        progress.advance(3)
    assert stream.getvalue() == ""
