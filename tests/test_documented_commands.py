"""Every `atlas …` that a document or a message shows exists: the group, the command and each flag."""

from __future__ import annotations

import itertools
import re
import shlex

import click
import pytest

from atlas_engine.cli.main import atlas_group
from tests.drawn import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "assets").rglob("*.md")),
]
SOURCES = [
    path for folder in ("atlas_engine", "app", "studies") for path in sorted((ROOT / folder).rglob("*.py"))
]
SHELL = {"", "bash", "console", "sh", "shell"}  # languages of a fenced block


def shell_lines(markdown):
    """The lines of shell blocks, each with those that a backslash joins to it."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", markdown, flags=re.DOTALL | re.MULTILINE)
    for language, code in fenced:
        if language in SHELL:
            yield from re.sub(r"\\\n\s*", " ", code).splitlines()


def typed_commands(line):
    """The words after each `atlas` that a shell line runs, up to a remark or the end of the command.

    >>> list(typed_commands("for set in *; do atlas bank show $set --json; done   a table each"))
    [['bank', 'show', '$set', '--json']]
    """
    for command in re.findall(r"(?:^|[;{|&(]|\bdo\b|\$ )\s*atlas\s+(.+)", line):
        lexer = shlex.shlex(re.split(r"\s{3,}", command)[0], posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        yield list(itertools.takewhile(lambda word: set(word) - set(";&|"), lexer))


def mentioned_commands(text):
    """The words after `atlas` of each inline code span, one list for each of several with | between them.

    >>> list(mentioned_commands("`atlas eval negate|add` and `atlas bench | doctor --json`"))
    [['eval', 'negate'], ['eval', 'add'], ['bench'], ['doctor', '--json']]
    """
    for span in re.findall(r"(?<!`)`atlas ([^`]+)`(?!`)", text):
        for command in re.split(r"\s+\|\s+", span):
            yield from map(list, itertools.product(*(word.split("|") for word in command.split())))


def what_is_wrong(words, *, whole):
    """Why these words are no command of `atlas`, or None; `whole` ones must reach a command, not a group."""
    command, left = atlas_group(), [word for word in words if word != "…"]
    context = click.Context(command)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        name = left.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return f"'{command.name}' has no command '{name}'"
        command = found
    flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    flags |= {"-h", "--help"}
    typed = {word.partition("=")[0] for word in left if re.match(r"--?[a-zA-Z]", word)}
    if typed - flags:
        return f"'atlas {' '.join(words)}' has no flag {', '.join(sorted(typed - flags))}"
    if whole and isinstance(command, click.Group) and not typed:
        return f"'atlas {' '.join(words)}' is a group and needs a command"
    return None


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_document_exists(path):
    markdown = path.read_text(encoding="utf-8")
    typed = [words for line in shell_lines(markdown) for words in typed_commands(line)]
    wrong = [what_is_wrong(words, whole=True) for words in typed]
    wrong += [what_is_wrong(words, whole=False) for words in mentioned_commands(markdown)]
    assert [sentence for sentence in wrong if sentence] == []


def test_every_command_that_a_message_or_docstring_names_exists():
    for path in SOURCES:
        for words in mentioned_commands(path.read_text(encoding="utf-8")):
            assert what_is_wrong(words, whole=False) is None, path


def test_the_documents_show_commands_of_every_group():
    lines = [line for path in DOCUMENTS for line in shell_lines(path.read_text(encoding="utf-8"))]
    shown = {words[0] for line in lines for words in typed_commands(line)}
    assert {"adapt", "bank", "bench", "doctor", "eval", "model", "predict"} <= shown


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("atlas bnak list", "'atlas' has no command 'bnak'"),
        ("atlas bank lst", "'bank' has no command 'lst'"),
        ("atlas bank", "is a group and needs a command"),
        ("atlas bank list --jsno", "has no flag --jsno"),
        ("for f in *; do atlas eval few-shot $f --shot=3; done", "has no flag --shot"),
        ("train() { atlas bank train $1 -x; }", "has no flag -x"),
    ],
)
def test_a_command_or_flag_that_does_not_exist_is_found(line, sentence):
    (words,) = typed_commands(line)
    assert sentence in what_is_wrong(words, whole=True)


def test_a_command_is_read_up_to_its_end():
    block = "```bash\natlas eval few-shot a 'b c' \\\n  --shots 1,4 | tee log   the --flag of a remark\n```\n"
    ((words,),) = map(list, map(typed_commands, shell_lines(block)))
    assert words == ["eval", "few-shot", "a", "b c", "--shots", "1,4"]
    assert what_is_wrong(words, whole=True) is None
