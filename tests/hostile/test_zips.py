"""Zips made to harm: bombs, false headers, paths that climb out and damage; nothing is written to disk."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.handlers.uploads import unpack_classes
from atlas_engine.data import ZipLimits, read_images_in, read_zip
from atlas_engine.errors import AtlasError, ConfigError, ImageError, SupportError


def png():
    stream = io.BytesIO()
    Image.linear_gradient("L").save(stream, "PNG")
    return stream.getvalue()


def zip_of(members, *, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


PAIR = [("cat/1.png", png()), ("dog/1.png", png())]
GOOD = zip_of(PAIR)


def names_of(found):
    return [item.name for item in found.items]


@pytest.mark.parametrize(
    "name",
    ["../evil.png", "cat/../../evil.png", "/etc/evil.png", "C:/evil.png", "c:evil.png", "..\\evil.png"],
)
def test_a_path_that_climbs_out_is_left_out_and_listed(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = read_zip(zip_of([*PAIR, (name, png())]))
    assert names_of(found) == ["cat/1.png", "dog/1.png"]
    assert [entry.reason for entry in found.ignored] == ["its path leads outside the zip"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "x" * 300 + ".png",
        "海" * 200 + ".png",
        "a/" * 200 + "x.png",
        "x." + "png" * 100,
        "x" * 60_000 + ".png",
    ],
)
def test_a_long_name_is_read_or_left_out_and_never_too_long_for_the_disk(name, tmp_path):
    archive = tmp_path / "photos.zip"
    archive.write_bytes(zip_of([*PAIR, (f"cat/{name}", png())]))
    found = read_zip(archive)
    assert {"cat/1.png", "dog/1.png"} <= set(names_of(found))
    assert all(len(entry.name) < 400 for entry in found.ignored)
    (tmp_path / "rows").mkdir()
    rows = unpack_classes(str(archive), tmp_path / "rows")
    assert [row.name for row in rows] == ["cat", "dog"]
    assert [len(row.paths) for row in rows] == [len(found.items) - 1, 1]
    assert all(Path(path).read_bytes() == png() for row in rows for path in row.paths)


def test_a_link_is_left_out():
    link = zipfile.ZipInfo("cat/link.png")
    link.external_attr = 0o120777 << 16
    found = read_zip(zip_of([*PAIR, (link, b"/etc/passwd")]))
    assert names_of(found) == ["cat/1.png", "dog/1.png"]
    assert [(entry.name, entry.reason) for entry in found.ignored] == [
        ("cat/link.png", "is a link, not a file")
    ]


def test_a_bomb_is_stopped_by_its_ratio():
    with pytest.raises(SupportError, match=r"^bomb\.zip: unpacks to more than 100 times its size"):
        read_zip(zip_of([*PAIR, ("cat/2.png", bytes(15 << 20))]), name="bomb.zip")


def test_a_member_larger_than_an_image_may_be_is_refused_by_its_own_name():
    data = zip_of([*PAIR, ("cat/2.png", os.urandom(3000))])
    with pytest.raises(ImageError, match=r"^cat/2\.png: has more than the 0\.00195 MiB taken"):
        read_zip(data, limits=ZipLimits(max_file_bytes=2048))


def test_many_small_members_are_counted_together():
    members = [(f"{pet}/{number}.png", os.urandom(1000)) for pet in ("cat", "dog") for number in range(10)]
    with pytest.raises(SupportError, match=r"^zip: unpacks to more than 0.0143 MiB"):
        read_zip(zip_of(members), limits=ZipLimits(max_total_bytes=15_000))


def test_too_many_entries_are_counted_before_they_are_parsed():
    members = [(f"cat/{number}.png", b"") for number in range(50)]
    with pytest.raises(SupportError, match=r"^zip: has more than 20 entries"):
        read_zip(zip_of(members), limits=ZipLimits(max_files=20))


def test_too_large_a_zip_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "big.zip"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SupportError, match=r"^big\.zip: has more than the 512 MiB taken"):
        read_zip(path)


def with_claimed_size(data, claimed):
    """The same zip whose every header tells another unpacked size."""
    lying = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = lying.find(signature)
        while at >= 0:
            struct.pack_into("<I", lying, at + offset, claimed)
            at = lying.find(signature, at + 1)
    return bytes(lying)


def test_headers_that_claim_little_do_not_let_much_through():
    bomb = with_claimed_size(zip_of([("cat/1.png", bytes(8 << 20)), ("dog/1.png", bytes(8 << 20))]), 100)
    with pytest.raises(SupportError, match=r"^zip: is damaged at 'cat/1.png'"):
        read_zip(bomb)


def test_headers_that_claim_much_do_not_make_us_reserve_it():
    # The true bytes arrive whole, then the stream ends early: no gigabytes are set aside on a header's word.
    found = read_zip(with_claimed_size(GOOD, 0x7FFFFFFF))
    assert [item.source for item in found.items] == [png(), png()]


def locked(data):
    marked = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = marked.find(signature)
        while at >= 0:
            marked[at + offset] |= 1
            at = marked.find(signature, at + 1)
    return bytes(marked)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (locked(GOOD), "is locked with a password"),
        (zip_of([*PAIR, ("cat/more.zip", GOOD)]), "holds another zip, 'cat/more.zip'"),
        (zip_of(PAIR, method=zipfile.ZIP_LZMA), "'cat/1.png' is packed by a rare method"),
        (zip_of(PAIR, method=zipfile.ZIP_BZIP2), "'cat/1.png' is packed by a rare method"),
        (GOOD[: len(GOOD) // 2], "is a damaged or cut zip"),
        (b"not a zip at all", "is not a zip"),
        (b"", "is not a zip"),
        (png(), "is not a zip"),
        (zip_of([]), "has no sub-folders"),
        (
            zip_of(PAIR, method=zipfile.ZIP_STORED).replace(png()[40:60], bytes(20)),
            "is damaged at 'cat/1.png'",
        ),
    ],
    ids=["locked", "nested", "lzma", "bzip2", "cut", "text", "empty", "png", "no members", "wrong checksum"],
)
def test_a_zip_that_cannot_be_used_says_why(data, words):
    with pytest.raises(SupportError, match=rf"^pets\.zip: {words}"):
        read_zip(data, name="pets.zip")


def test_limits_out_of_range_are_refused_when_built():
    with pytest.raises(ConfigError, match="max_ratio"):
        ZipLimits(max_ratio=0)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_a_mangled_zip_is_a_set_or_a_named_refusal(data):
    mangled = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mangled) - 1))
        if data.draw(st.booleans()):
            mangled[at] = data.draw(st.integers(0, 255))
        else:
            del mangled[at : at + data.draw(st.integers(1, 8))]
    for read in (read_zip, read_images_in):
        found = outcome(read, bytes(mangled))
        if isinstance(found, str):
            assert found.startswith("pets.zip: ")
        else:
            assert all(isinstance(item.source, bytes) for item in found.items)


def outcome(read, data):
    try:
        return read(data, name="pets.zip")
    except AtlasError as error:
        return str(error)
