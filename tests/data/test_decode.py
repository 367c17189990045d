"""Good images are read from every kind of source and mode, upright, the same in and out of the helper."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image as PILImage

from atlas_engine.data import Image, ImageLimits, read_image, read_images
from atlas_engine.errors import ConfigError, ImageError

RED, BLUE = (255, 0, 0), (0, 0, 255)


def drawn(width=40, height=24):
    """Smooth, and different under every flip and turn."""
    y, x = np.mgrid[0:height, 0:width]
    planes = (x * 255 // width, y * 255 // height, (x + 2 * y) * 255 // (width + 2 * height))
    return np.stack(planes, axis=-1).astype(np.uint8)


def encoded(image, kind="PNG", **options):
    if isinstance(image, np.ndarray):
        image = PILImage.fromarray(image)
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png(depth, colour_type, row, *, transparent=b""):
    """A PNG of 16 equal rows, written by hand: PIL cannot write 16-bit colour."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 16, 16, depth, colour_type, 0, 0, 0)
    key = chunk(b"tRNS", transparent) if transparent else b""
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + row) * 16))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + key + pixels + chunk(b"IEND", b"")


def only_colour(image):
    colours = np.unique(image.pixels.reshape(-1, 3), axis=0)
    assert len(colours) == 1
    return tuple(int(value) for value in colours[0])


def test_a_path_bytes_a_pil_image_and_an_array_give_the_same_image(tmp_path):
    path = tmp_path / "ramp.png"
    path.write_bytes(encoded(drawn()))
    images = [
        read_image(source)
        for source in (
            path,
            str(path),
            path.read_bytes(),
            bytearray(path.read_bytes()),
            PILImage.open(path),
            drawn(),
        )
    ]
    assert set(images) == {Image("the same", drawn())}
    assert [image.name for image in images] == ["ramp.png", "ramp.png"] + ["image"] * 4


def test_an_image_is_returned_as_it_is():
    image = read_image(drawn(), name="ramp")
    assert read_image(image) is image


FILES = {
    "jpeg": encoded(drawn(900, 700), "JPEG"),
    "progressive": encoded(drawn(), "JPEG", progressive=True),
    "grey jpeg": encoded(PILImage.fromarray(drawn()).convert("L"), "JPEG"),
    "cmyk jpeg": encoded(PILImage.fromarray(drawn()).convert("CMYK"), "JPEG"),
    "webp": encoded(drawn(600, 500), "WEBP"),
    "lossless webp": encoded(drawn(), "WEBP", lossless=True),
    "palette": encoded(PILImage.fromarray(drawn()).quantize(16)),
    "bilevel": encoded(PILImage.fromarray(drawn()).convert("1")),
    "rgba": encoded(PILImage.fromarray(drawn(700, 500)).convert("RGBA")),
    "deep grey": encoded(PILImage.fromarray(drawn()[:, :, 0].astype(np.uint16) * 257)),
}


@pytest.mark.parametrize("kind", FILES)
def test_the_helper_process_and_this_process_give_identical_pixels(kind):
    assert read_image(FILES[kind], isolated=True) == read_image(FILES[kind], isolated=False)


def test_lossless_files_come_back_exactly():
    assert np.array_equal(read_image(FILES["lossless webp"]).pixels, drawn())


@pytest.mark.parametrize(("width", "height"), [(1000, 600), (600, 1000), (449, 449)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_large_images_are_shrunk_to_the_short_side_we_keep(width, height, kind):
    image = read_image(encoded(drawn(width, height), kind))
    assert min(image.width, image.height) == 448
    assert image.width / image.height == pytest.approx(width / height, rel=0.002)  # one pixel of rounding
    shrunk = PILImage.fromarray(drawn(width, height)).resize((image.width, image.height))
    off = np.abs(image.pixels.astype(int) - np.asarray(shrunk).astype(int))
    assert off.mean() < 2  # JPEG loss and another kernel; a wrong crop or channel order gives tens


def test_small_images_keep_their_size():
    assert read_image(drawn(40, 24)).pixels.shape == (24, 40, 3)


UNDO = {
    1: lambda upright: upright,
    2: np.fliplr,
    3: lambda upright: np.rot90(upright, 2),
    4: np.flipud,
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: np.rot90(upright, 2).transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("orientation", UNDO)
def test_every_exif_orientation_is_turned_upright(orientation):
    exif = PILImage.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(UNDO[orientation](drawn()))
    assert np.array_equal(read_image(encoded(stored, exif=exif)).pixels, drawn())


def test_a_broken_exif_block_does_not_spoil_the_image():
    image = read_image(encoded(drawn(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff nonsense"))
    assert np.array_equal(image.pixels, drawn())


def palette(transparency):
    image = PILImage.new("P", (16, 16), 1)
    image.putpalette([9, 9, 9, 0, 0, 0])
    return encoded(image, transparency=transparency)


WHITE = (255, 255, 255)
A_FIFTH_OF_BLACK = (204, 204, 204)  # 255 · (1 − 51 / 255)
TRANSPARENT = {
    "rgba, clear": (encoded(PILImage.new("RGBA", (16, 16), (9, 9, 9, 0))), WHITE),
    "rgba": (encoded(PILImage.new("RGBA", (16, 16), (0, 0, 0, 51))), A_FIFTH_OF_BLACK),
    "grey and alpha": (encoded(PILImage.new("LA", (16, 16), (0, 51))), A_FIFTH_OF_BLACK),
    "webp": (encoded(PILImage.new("RGBA", (16, 16), (0, 0, 0, 51)), "WEBP", lossless=True), A_FIFTH_OF_BLACK),
    "large": (encoded(PILImage.new("RGBA", (600, 600), (0, 0, 0, 51))), A_FIFTH_OF_BLACK),
    "palette, one entry": (palette(1), WHITE),
    "palette, other entry": (palette(0), (0, 0, 0)),
    "palette, alpha": (palette(bytes([255, 51])), A_FIFTH_OF_BLACK),
    "grey key": (encoded(PILImage.new("L", (16, 16), 7), transparency=7), WHITE),
    "colour key": (encoded(PILImage.new("RGB", (16, 16), RED), transparency=RED), WHITE),
    "other colour key": (encoded(PILImage.new("RGB", (16, 16), RED), transparency=BLUE), RED),
    "2-bit key": (png(2, 0, b"\x55" * 4, transparent=b"\0\1"), WHITE),
    "16-bit grey key": (png(16, 0, b"\x12\x34" * 16, transparent=b"\x12\x34"), WHITE),
    "16-bit colour key": (
        png(16, 2, b"\x12\x34\0\1\xff\xfe" * 16, transparent=b"\x12\x34\0\1\xff\xfe"),
        WHITE,
    ),
}


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("kind", TRANSPARENT)
def test_what_is_transparent_becomes_white(kind, isolated):
    data, colour = TRANSPARENT[kind]
    assert only_colour(read_image(data, isolated=isolated)) == colour


DEEP = {
    "grey": (png(16, 0, b"\x9c\x40" * 16), (0x9C,) * 3),
    "colour": (png(16, 2, b"\x9c\x40\xff\xff\x00\xff" * 16), (0x9C, 0xFF, 0)),
    "grey and alpha": (png(16, 4, b"\x9c\x40\xff\xff" * 16), (0x9C,) * 3),
    "colour and alpha": (png(16, 6, b"\x9c\x40\x01\x00\x02\x00\xff\xff" * 16), (0x9C, 1, 2)),
}


@pytest.mark.parametrize("kind", DEEP)
def test_sixteen_bits_are_scaled_and_not_clipped(kind):
    data, colour = DEEP[kind]
    assert only_colour(read_image(data)) == colour


def test_a_cmyk_image_keeps_its_colours():
    red, green, blue = only_colour(
        read_image(encoded(PILImage.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    )
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "MPO"])
def test_only_the_first_frame_counts(kind):
    frames = [PILImage.new("RGB", (16, 16), colour) for colour in (RED, BLUE)]
    lossless = {"lossless": True} if kind == "WEBP" else {}
    red, _, blue = only_colour(
        read_image(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **lossless))
    )
    assert red > 250  # MPO is JPEG inside, which is a little lossy
    assert blue < 5


def test_the_first_bytes_count_and_not_the_ending(tmp_path):
    path = tmp_path / "really_png.jpg"
    path.write_bytes(encoded(drawn()))
    assert np.array_equal(read_image(path).pixels, drawn())


@pytest.mark.parametrize(
    "array",
    [
        drawn()[:, :, 0],
        drawn()[:, :, :1],
        drawn()[:, :, 0].astype(np.uint16) * 257,
        drawn()[:, :, 0] / 255,
        (drawn()[:, :, 0] / 255).astype(np.float32),
        drawn()[:, :, 0].T.copy().T,
    ],
)
def test_grey_arrays_of_every_kind_give_the_same_grey_image(array):
    expected = np.repeat(drawn()[:, :, :1], 3, axis=2)
    assert np.array_equal(read_image(array).pixels, expected)


def test_an_array_with_alpha_is_laid_on_white():
    assert only_colour(read_image(np.full((16, 16, 4), (0, 0, 0, 51), np.uint8))) == (204, 204, 204)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (drawn().transpose(2, 0, 1), "Channels come last"),
        (np.zeros((16, 16, 2), np.uint8), r"shape \(16, 16, 2\)"),
        (np.zeros((16, 16), np.int64), "array of int64"),
        (drawn().astype(float), "floats from 0 to"),
        (np.full((16, 16), np.nan), "floats from nan"),
        (np.zeros((0, 16), np.uint8), "each side needs at least 8"),
        (["a", "list"], "is a list, which is no image"),
        (None, "is a NoneType"),
    ],
)
def test_an_array_that_is_no_image_is_refused_by_name(array, words):
    with pytest.raises(ImageError, match=f"^frame 7: .*{words}"):
        read_image(array, name="frame 7")


def test_a_pil_image_of_a_deep_mode_is_scaled():
    deep = PILImage.fromarray(np.full((16, 16), 0x9C40, np.int32))
    assert only_colour(read_image(deep)) == (0x9C,) * 3
    with pytest.raises(ImageError, match=r"^image: has values from 70000"):
        read_image(PILImage.fromarray(np.full((16, 16), 70000, np.int32)))


def test_read_images_skips_or_raises_as_told(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"nonsense")
    sources = [drawn(), tmp_path / "bad.jpg", encoded(drawn())]
    images, errors = read_images(sources, on_error="skip")
    assert [image.name for image in images] == ["image 1", "image 3"]
    assert [str(error).split(":")[0] for error in errors] == ["bad.jpg"]
    with pytest.raises(ImageError, match=r"^bad\.jpg: "):
        read_images(sources)
    with pytest.raises(ConfigError, match="on_error"):
        read_images(sources, on_error="ignore")


def test_limits_are_the_callers_to_choose():
    limits = ImageLimits(keep_side=16)
    assert read_image(encoded(drawn(40, 24)), limits=limits).height == 16
    assert read_image(drawn(40, 24), limits=limits).height == 16
