"""The table of attacks: one row can be measured again, and a soak is judged by what grew."""

from __future__ import annotations

from studies.load_test.attack import AttackRow, _document, main, merge_rows
from studies.load_test.attacks import AttackOutcome, _judge_soak, _SoakSample

ROWS = [AttackRow(name, AttackOutcome(3, note="before"), 0.5).cells() for name in ("a flood", "soak")]


def test_one_row_is_put_in_place_of_the_old_one_with_its_command():
    document = _document(ROWS, "1 MB", command="attack --inputs 3")
    new = AttackRow("soak", AttackOutcome(9, note="after"), 3.0).cells()
    merged = merge_rows(document, [new], command="attack --only soak")
    assert "| soak | 9 | 0 | 0 | 0 | 3.00 s | NO | after |" in merged
    assert "| a flood | 3 | 0 | 0 | 0 | 0.50 s | yes | before |" in merged
    assert merged.count("| soak |") == 1
    assert "attack --inputs 3\nattack --only soak  # soak\n```" in merged
    assert merge_rows(merged, [new], command="attack --only soak") == merged


def test_a_row_that_is_new_comes_last_in_the_table():
    merged = merge_rows(_document(ROWS, "1 MB", command="attack"), [("new", "1")], command="attack")
    assert "| before |\n| new | 1 |\n\n" in merged


def test_a_page_that_failed_once_did_not_hold():
    assert AttackRow("a flood", AttackOutcome(3), 0.5).held
    assert not AttackRow("a flood", AttackOutcome(3), 0.5, failures=1).held


def test_an_attack_that_there_is_not_is_told_with_those_that_there_are(capsys):
    assert main(["--only", "nonsense"]) == 2
    assert "There are: nothing, for comparison; routes" in capsys.readouterr().err


def soaked(*, megabytes=0.0, files=0.0, descriptors=0.0):
    """A sample a minute for 70 minutes; each number grows by so much a minute."""
    return [
        _SoakSample(60.0 * m, 1000 + megabytes * m, int(100 + files * m), 1.0, int(20 + descriptors * m))
        for m in range(70)
    ]


def test_a_soak_holds_only_where_nothing_grows():
    assert _judge_soak(soaked(), failed=0, seconds=4200).held
    assert not _judge_soak(soaked(), failed=1, seconds=4200).held
    assert not _judge_soak(soaked(megabytes=5), failed=0, seconds=4200).held
    assert not _judge_soak(soaked(descriptors=2), failed=0, seconds=4200).held
    assert not _judge_soak(soaked(files=10), failed=0, seconds=4200).held
