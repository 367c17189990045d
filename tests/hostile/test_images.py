"""Files that are not images, or damaged ones: each is refused in one sentence that begins with its name."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from atlas_engine.data import Image, ImageLimits, read_image
from atlas_engine.errors import ImageError


def encoded(kind, width=48, height=32, **options):
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 5, y * 7, x * y], axis=-1).astype(np.uint8)
    stream = io.BytesIO()
    PILImage.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def headline(width, height):
    """The first 33 bytes of a PNG and nothing else: what it would cost is all one can learn from it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + b"\0\0\0\1IDAT"
    )


GOOD = {
    "JPEG": encoded("JPEG"),
    "progressive JPEG": encoded("JPEG", progressive=True, exif=bytes(PILImage.Exif())),
    "PNG": encoded("PNG"),
    "WEBP": encoded("WEBP"),
    "lossless WEBP": encoded("WEBP", lossless=True),
}

IMAGES = {"a GIF", "a TIFF", "a BMP", "a JPEG 2000", "a HEIC photo", "an AVIF", "an SVG", "a PDF"}
OTHER_FILES = {
    "a GIF": encoded("GIF"),
    "a TIFF": encoded("TIFF"),
    "a BMP": encoded("BMP"),
    "a JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20),
    "a HEIC photo": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(20),
    "an AVIF": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1" + bytes(20),
    "a video": b"\0\0\0\x18ftypisom\0\0\2\0isomiso2" + bytes(20),
    "an SVG": b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "a web page": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "a PDF": b"%PDF-1.7\n" + bytes(40),
    "a Windows program": b"MZ\x90\0" + bytes(60),
    "a Linux program": b"\x7fELF\2\1\1" + bytes(60),
    "a ZIP": b"PK\3\4" + bytes(30),
    "a script": b"#!/bin/sh\necho hello\n",
    "a text file": "pas une image, hélas".encode(),
    "no kind of image": bytes(range(128, 200)),
    "a Python pickle": b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\7unicorn\x94.",
}


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("kind", OTHER_FILES)
def test_another_kind_of_file_is_recognised_whatever_its_ending(kind, isolated, tmp_path):
    path = tmp_path / "holiday.jpg"
    path.write_bytes(OTHER_FILES[kind])
    with pytest.raises(ImageError, match=rf"^holiday\.jpg: seems to be {kind}") as caught:
        read_image(path, isolated=isolated)
    remedy = (
        "Unpack it" if kind == "a ZIP" else "Save it as JPEG or PNG" if kind in IMAGES else "Give an image"
    )
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_file_a_missing_file_and_a_folder_each_have_their_sentence(tmp_path):
    (tmp_path / "empty.png").touch()
    with pytest.raises(ImageError, match=r"^empty\.png: is empty \(0 bytes\)"):
        read_image(tmp_path / "empty.png")
    with pytest.raises(ImageError, match=r"^gone\.png: there is no such file"):
        read_image(tmp_path / "gone.png")
    (tmp_path / "album.png").mkdir()
    with pytest.raises(ImageError, match=r"^album\.png: is a folder"):
        read_image(tmp_path / "album.png")
    with pytest.raises(ImageError, match=r"^image: is empty"):
        read_image(b"")
    with pytest.raises(ImageError, match="cannot be read"):
        read_image("a\0b.png")
    with pytest.raises(ImageError, match="cannot be read"):
        read_image("x" * 5000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ImageError, match=r"^pipe\.png: is a device or a pipe"):
        read_image(tmp_path / "pipe.png")
    with pytest.raises(ImageError, match=r"^zero: is a device"):
        read_image("/dev/zero")


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX permissions")
def test_a_file_that_may_not_be_read_has_its_sentence(tmp_path):
    path = tmp_path / "private.png"
    path.write_bytes(GOOD["PNG"])
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # the superuser may read all, so be nobody for a moment
    try:
        with pytest.raises(ImageError, match=r"^private\.png: may not be read by this user"):
            read_image(path)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/a.png",
        "HTTPS://example.org/a.png",
        Path("https://example.org/a.png"),
        "data:image/png;base64,",
    ],
)
def test_a_web_address_is_never_fetched(address):
    with pytest.raises(ImageError, match="is a web address, and images are never fetched"):
        read_image(address)


def test_too_many_bytes_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "big.jpg"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it would take for ever
    with pytest.raises(ImageError, match=r"^big\.jpg: has 1\.05e\+06 MiB, but at most 20 MiB are taken"):
        read_image(path)
    with pytest.raises(ImageError, match=r"^image: has"):
        read_image(GOOD["PNG"], limits=ImageLimits(max_bytes=100))


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((6000, 7000), "is 6000 × 7000 pixels, more than the 40 million pixels taken"),
        ((10_000, 10_000), "has more pixels than the 40 million pixels taken"),  # PIL warns of a bomb
        ((60_000, 60_000), "has more pixels than the 40 million pixels taken"),  # PIL refuses a bomb
        ((3100, 100), "is 3100 × 100 pixels, more than 30 times as long as wide"),
        ((7, 100), "is 7 × 100 pixels, but each side needs at least 8"),
    ],
)
def test_pixels_are_counted_before_any_is_decoded(size, words, isolated):
    with pytest.raises(ImageError, match=f"^bomb: {words}"):
        read_image(headline(*size), name="bomb", isolated=isolated)


def test_a_header_of_acceptable_size_without_pixels_is_damaged():
    with pytest.raises(ImageError, match=r"^bomb: is (cut short|damaged)"):
        read_image(headline(100, 100), name="bomb")


@pytest.mark.parametrize("kind", GOOD)
def test_a_file_cut_short_anywhere_is_refused(kind):
    data = GOOD[kind]
    for length in range(3, len(data) - 8, 5):  # the last 8 bytes of a PNG are its closing word and a checksum
        with pytest.raises(ImageError, match=r"^half\.jpg: (is cut short|is damaged|seems to be)"):
            read_image(data[:length], name="half.jpg", isolated=False)


def test_a_hostile_file_name_is_shown_on_one_safe_line(tmp_path):
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a\n\x1b[31m\udc80.jpg")
    assert str(caught.value) == "a??[31m?.jpg: there is no such file. Check the path."
    with pytest.raises(ImageError) as caught:
        read_image(b"", name="x" * 10_000)
    assert len(str(caught.value)) < 200


@st.composite
def mangled(draw):
    """A good file after up to four accidents: bits flipped, parts cut, inserted, doubled or swapped."""
    data = bytearray(GOOD[draw(st.sampled_from(sorted(GOOD)))])
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        stop = min(len(data), start + draw(st.integers(1, 64)))
        accident = draw(st.sampled_from(("flip", "set", "cut", "insert", "double", "end")))
        if accident == "flip" and data:
            data[start] ^= 1 << draw(st.integers(0, 7))
        elif accident == "set":
            data[start:stop] = bytes([draw(st.sampled_from((0, 1, 127, 128, 255)))]) * (stop - start)
        elif accident == "cut":
            del data[start:stop]
        elif accident == "insert":
            data[start:start] = draw(st.binary(max_size=64))
        elif accident == "double":
            data[stop:stop] = data[start:stop]
        else:
            del data[max(start, 12) :]
    return bytes(data)


@pytest.mark.parametrize("isolated", [True, False])
def test_a_mangled_file_is_an_image_or_a_named_refusal_and_the_next_one_reads(isolated):
    expected = read_image(GOOD["PNG"])

    @settings(
        max_examples=300,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mangled())
    def check(data):
        found = outcome(data, isolated=isolated)
        if isinstance(found, Image):
            assert min(found.width, found.height) <= 448
        else:
            assert found.startswith("mangled.bin: ")
            assert "\n" not in found
        assert read_image(GOOD["PNG"], isolated=isolated) == expected

    check()


def test_mangled_files_read_the_same_in_and_out_of_the_helper():
    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mangled())
    def check(data):
        assert outcome(data, isolated=True) == outcome(data, isolated=False)

    check()


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.binary(max_size=200),
    st.sampled_from((b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x99\0\0\0WEBP")),
)
def test_noise_behind_any_signature_is_refused(noise, signature):
    with pytest.raises(ImageError, match=r"^noise: "):
        read_image(signature + noise, name="noise")


def outcome(data, *, isolated):
    try:
        return read_image(data, name="mangled.bin", isolated=isolated)
    except ImageError as error:
        return str(error)
