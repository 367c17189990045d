"""What a visitor teaches: rows, samples and zips, and what is refused of them in plain words."""

from __future__ import annotations

import zipfile
from pathlib import Path

import gradio as gr
import pytest

import atlas_engine as atlas
from app.handlers.ask import split_class_names
from app.handlers.few_shot import FewShotRequest, adapt_few_shot, read_request
from app.handlers.settings import FewShotSettings, few_shot_from_query
from app.handlers.takeaway import save_recipe
from app.handlers.uploads import ClassRow, UploadedImage, read_samples, unpack_classes, unpack_images
from app.limits import LIMITS
from app.tabs.class_rows import ClassRows
from app.tabs.teach import FewShotSettingsForm

TWO = (ClassRow("otter", ("a.png",)), ClassRow("seal", ("b.png",)))


def refusal(rows, samples=()):
    with pytest.raises(atlas.AtlasError) as caught:
        FewShotRequest(tuple(rows), tuple(samples))
    return str(caught.value)


def test_what_the_page_takes_of_a_picture_is_what_the_engine_takes():
    of_engine = atlas.ImageLimits()
    assert LIMITS.image_megabytes << 20 == of_engine.max_bytes
    assert LIMITS.packed_side >= of_engine.keep_side, "a picture is not made smaller than the engine keeps it"


def test_empty_rows_are_dropped_and_names_are_tidied():
    few_shot_request = FewShotRequest(
        (ClassRow(" sea   lion ", ("a.png",)), ClassRow("", ()), ClassRow("otter", ("b.png",)))
    )
    assert few_shot_request.classes == ("otter", "sea lion")


def test_classes_and_pictures_have_the_order_of_a_folder_of_them():
    few_shot_request = FewShotRequest(
        (ClassRow("b", ("x/img10.png", "y/img2.png")), ClassRow("A", ("z.png",)))
    )
    assert few_shot_request.rows == (ClassRow("A", ("z.png",)), ClassRow("b", ("y/img2.png", "x/img10.png")))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no class"),
        ([ClassRow("otter", ("a.png",))], "one class"),
        ([ClassRow("otter", ("a.png",)), ClassRow("", ("b.png",))], "Class 2 has images but no name"),
        (
            [ClassRow("otter", ("a.png",)), ClassRow("", ()), ClassRow(" ", ("b.png",))],
            "Class 3 has images but no name",
        ),
        ([ClassRow("otter", ("a.png",)), ClassRow("seal", ())], "Class 'seal' has no images"),
        ([ClassRow(f"c{n}", ("a.png",)) for n in range(LIMITS.rows + 1)], f"at most {LIMITS.rows}"),
        (
            [ClassRow("otter", ("a.png",) * LIMITS.support_images), ClassRow("seal", ("b.png",))],
            "to learn from",
        ),
    ],
)
def test_a_lesson_that_cannot_be_learned_is_refused_with_the_remedy(rows, said):
    assert said in refusal(rows)


def test_too_many_samples_are_refused_with_both_numbers():
    said = refusal(TWO, [UploadedImage("a.png")] * (LIMITS.samples + 1))
    assert str(LIMITS.samples + 1) in said
    assert str(LIMITS.samples) in said


def test_reading_tells_how_far_it_is_and_ends_with_all(few_shot_request):
    states = list(read_request(few_shot_request))
    seen = [state.seen for state in states]
    assert seen[0] == 0
    assert seen == sorted(seen)
    last = states[-1]
    assert last.seen == last.total == few_shot_request.total
    assert last.support.classes == few_shot_request.classes
    assert last.support.counts == (4, 4, 4)
    assert [sample.label for sample in last.samples] == [sample.label for sample in few_shot_request.samples]


def test_a_bad_picture_is_left_out_by_name_and_the_rest_is_learned(few_shot_request, tmp_path):
    bad = tmp_path / "notes.jpg"
    bad.write_text("only words")
    first, *others = few_shot_request.rows
    *_, last = read_request(FewShotRequest((ClassRow(first.name, (*first.paths, str(bad))), *others)))
    assert last.support.counts == (4, 4, 4)
    assert len(last.left_out) == 1
    assert last.left_out[0].startswith("notes.jpg:")


def test_a_class_of_bad_pictures_only_is_refused_by_its_name_and_theirs(few_shot_request, tmp_path):
    (tmp_path / "empty.png").touch()
    with pytest.raises(atlas.AtlasError, match=r"class 'ghost' has no images.*empty\.png"):
        list(
            read_request(
                FewShotRequest((*few_shot_request.rows, ClassRow("ghost", (str(tmp_path / "empty.png"),))))
            )
        )


def test_the_class_of_a_sample_counts_only_if_it_is_taught(draw):
    samples = [
        UploadedImage(draw("a.png"), "OTTER"),
        UploadedImage(draw("b.png"), "walrus"),
        UploadedImage(draw("c.png")),
    ]
    shown, refused = read_samples(samples, ("otter", "seal"))
    assert [sample.label for sample in shown] == ["otter", None, None]
    assert refused == ()


def test_a_zip_becomes_rows_of_files(archive, tmp_path):
    rows = unpack_classes(str(archive), tmp_path)
    assert [row.name for row in rows] == ["blue", "dark green", "red"]
    assert [len(row.paths) for row in rows] == [4, 4, 4]
    assert all(Path(path).is_file() and tmp_path in Path(path).parents for row in rows for path in row.paths)


@pytest.mark.parametrize(
    ("members", "truths"),
    [
        (["1.png", "2.png"], [None, None]),
        (["roll/1.png", "roll/sea_lion/2.png"], ["roll", "sea lion"]),
        (["otter/1.png", "seal/1.png"], ["otter", "seal"]),
    ],
)
def test_photos_of_a_zip_are_taken_from_anywhere_in_it_each_with_its_folder(members, truths, tmp_path, draw):
    with zipfile.ZipFile(tmp_path / "roll.zip", "w") as packed:
        for member in members:
            packed.write(draw("a.png"), member)
    samples = unpack_images(str(tmp_path / "roll.zip"), tmp_path)
    assert [sample.label for sample in samples] == truths
    assert [Path(sample.path).name for sample in samples] == [Path(member).name for member in members]
    assert len({sample.path for sample in samples}) == len(members)


def test_a_zip_that_climbs_out_leaves_nothing_outside(tmp_path, draw):
    picture = Path(draw("ok.png")).read_bytes()
    evil = tmp_path / "evil.zip"
    with zipfile.ZipFile(evil, "w") as packed:
        for name in ("otter/1.png", "seal/1.png", "../../escaped.png", "/rooted.png"):
            packed.writestr(name, picture)
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    rows = unpack_classes(str(evil), folder)
    assert [row.name for row in rows] == ["otter", "seal"]
    assert not list(tmp_path.rglob("escaped.png")) + list(tmp_path.rglob("rooted.png"))


def test_a_zip_with_more_classes_than_rows_is_refused_with_the_numbers(tmp_path, draw):
    picture = Path(draw("ok.png")).read_bytes()
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as packed:
        for number in range(LIMITS.rows + 1):
            packed.writestr(f"class{number}/1.png", picture)
    (tmp_path / "out").mkdir()
    with pytest.raises(atlas.AtlasError, match=f"{LIMITS.rows + 1} classes.*at most {LIMITS.rows}"):
        unpack_classes(str(tmp_path / "many.zip"), tmp_path / "out")


def test_a_zip_bomb_and_a_file_that_is_no_zip_are_refused_in_the_engines_words(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("a/1.png", "b/1.png"):
            packed.writestr(name, b"\0" * (30 << 20))
    (tmp_path / "words.zip").write_text("only words")
    with pytest.raises(atlas.AtlasError, match=r"zip bomb|MiB"):
        unpack_classes(str(tmp_path / "bomb.zip"), tmp_path)
    with pytest.raises(atlas.AtlasError, match=r"words\.zip: is not a zip"):
        unpack_classes(str(tmp_path / "words.zip"), tmp_path)


def test_the_summary_counts_rows_and_tells_of_a_name_that_stands_twice():
    rows = [ClassRow("otter", ("a.png",)), ClassRow("", ()), ClassRow("Otter ", ("b.png", "c.png"))]
    with gr.Blocks():
        made = ClassRows.create([], gr.HTML())
    said = made.fill(rows)[made.summary]
    assert "2 classes, 3 images. The name Otter stands twice" in said


@pytest.mark.parametrize(
    ("typed", "tidied"),
    [
        ("\U0001f469\u200d\U0001f33e farmer", "\U0001f469\u200d\U0001f33e farmer"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        ("sea\u00ad lion\u200f", "sea lion"),
    ],
)
def test_names_of_any_script_are_learned_and_saved_and_soft_hyphens_dropped(
    small, few_shot_request, tmp_path, typed, tidied
):
    first, *others = few_shot_request.rows
    again = FewShotRequest((ClassRow(typed, first.paths), *others))
    assert tidied in again.classes
    *_, last = adapt_few_shot(small, again, FewShotSettings(method="text-probe", steps=1))
    path = save_recipe(last.result.recipe, tmp_path)
    assert tidied in atlas.Recipe.load(path).classes
    assert split_class_names(f"{typed}, otter") == (tidied, "otter")


def test_a_name_that_cannot_be_shown_is_refused_before_anything_is_learned(small, few_shot_request):
    first, *others = few_shot_request.rows
    with pytest.raises(atlas.AtlasError, match="cannot be shown"):
        list(
            adapt_few_shot(
                small, FewShotRequest((ClassRow("a\x07b", first.paths), *others)), FewShotSettings(steps=1)
            )
        )


def test_an_emptied_learning_rate_is_the_usual_one_and_one_of_nought_is_refused():
    with gr.Blocks():
        form = FewShotSettingsForm.create()
    emptied = {form.method: "auto", form.steps: 3, form.lr: None, form.seed: None, form.templates: None}
    assert form.read(emptied) == FewShotSettings(steps=3)
    with pytest.raises(atlas.AtlasError, match="nothing is learned"):
        _ = form.read({**emptied, form.lr: 0}).config
    assert few_shot_from_query([("class", "otter"), ("lr", "0")])[1] == FewShotSettings()
