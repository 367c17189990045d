"""Images from files, bytes, PIL images and arrays. The engine imports PIL in this module only.

    image = read_image("otter.jpg")                       # decoded in a helper process
    image = read_image(array, name="frame 7")             # (H W), (H W 1), (H W 3) or (H W 4)
    images, errors = read_images(paths, on_error="skip", stop=flag.is_set)     # StoppedError once it is set

Only JPEG, PNG and WEBP files are accepted, recognised by their first bytes. Bytes and pixels are counted
before anything is decoded. A refusal is an ImageError that begins with the file's name and says what to do.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PILImage

from atlas_engine.data.formats import accepted_format, advice_for, describe_kind, printable_name
from atlas_engine.data.image import (
    DEFAULT_LIMITS,
    Image,
    ImageLimits,
    Pixels,
    StopQuestion,
    raise_if_stopped,
)
from atlas_engine.data.sandbox import shared_decoder
from atlas_engine.errors import ConfigError, ImageError

__all__ = [
    "ImageSource",
    "compress_as_jpeg",
    "decode",
    "load_decoders",
    "png_bytes",
    "read_each",
    "read_image",
    "read_images",
    "source_name",
]

ImageSource = str | os.PathLike[str] | bytes | bytearray | memoryview | PILImage.Image | NDArray[Any] | Image
Key = TypeVar("Key")


def read_image(
    source: ImageSource,
    *,
    name: str | None = None,
    limits: ImageLimits = DEFAULT_LIMITS,
    isolated: bool = True,
    stop: StopQuestion | None = None,
) -> Image:
    """An Image from a path, a file's bytes, a PIL image or an array; an Image is returned as it is.

    `isolated` decodes files in a helper process, which may crash without harm; the pixels are the same
    either way. PIL images and arrays are converted in this process. `stop` is asked before an image is read
    and, with the helper, meanwhile: a StoppedError follows within a second after it is true.
    """
    raise_if_stopped(stop, printable_name(name or "image"))
    if isinstance(source, Image):
        return source
    name = name or source_name(source)
    if isinstance(source, (str, os.PathLike)):
        data = _read_file(source, name=printable_name(name), limits=limits)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data = _check_nbytes(bytes(source), name=printable_name(name), limits=limits)
    else:
        return Image(name, _pixels_from_memory(source, name=printable_name(name), limits=limits))
    if isolated:
        pixels = shared_decoder().decode(data, name=printable_name(name), limits=limits, stop=stop)
        return Image(name, pixels)
    with _IN_PROCESS:
        return Image(name, decode(data, name=printable_name(name), limits=limits))


def source_name(source: ImageSource) -> str:
    """What an image is called where nobody names it: its file's name, or `image`."""
    if isinstance(source, Image):
        return source.name
    return _path_name(source) if isinstance(source, (str, os.PathLike)) else "image"


def read_images(
    sources: Iterable[ImageSource],
    *,
    limits: ImageLimits = DEFAULT_LIMITS,
    isolated: bool = True,
    on_error: Literal["raise", "skip"] = "raise",
    stop: StopQuestion | None = None,
) -> tuple[list[Image], list[ImageError]]:
    """The images that could be read, in order, and the errors of the others.

    With `on_error="raise"` the first error is raised instead. Sources without a file name are called
    `image 1`, `image 2` and so on, by their place. A StoppedError ends the reading once `stop` is true.
    """
    named = (
        (None, None if isinstance(source, (str, os.PathLike)) else f"image {number}", source)
        for number, source in enumerate(sources, start=1)
    )
    read, errors = read_each(named, limits=limits, isolated=isolated, on_error=on_error, stop=stop)
    return [image for _, image in read], errors


def read_each(
    named: Iterable[tuple[Key, str | None, ImageSource]],
    *,
    limits: ImageLimits,
    isolated: bool,
    on_error: Literal["raise", "skip"],
    stop: StopQuestion | None,
) -> tuple[list[tuple[Key, Image]], list[ImageError]]:
    """Pairs (key, image) of the (key, name, source) that could be read, and the errors of the others."""
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"on_error is {on_error!r} but must be 'raise' or 'skip'.")
    read: list[tuple[Key, Image]] = []
    errors: list[ImageError] = []
    for key, name, source in named:
        try:
            image = read_image(source, name=name, limits=limits, isolated=isolated, stop=stop)
            read.append((key, image))
        except ImageError as error:
            if on_error == "raise":
                raise
            errors.append(error)
    return read, errors


def decode(data: bytes, *, name: str, limits: ImageLimits) -> Pixels:
    """The pixels (H W 3) of a file's bytes: upright, 8-bit, on white. Runs in the helper process, or here."""
    accepted = accepted_format(data)
    if accepted is None:
        kind = describe_kind(data)
        raise ImageError(
            f"{name}: seems to be {kind}, but only JPEG, PNG and WEBP are taken. {advice_for(kind)}"
        )
    try:
        with _strict_warnings(), PILImage.open(io.BytesIO(data), formats=(accepted,)) as image:
            _check_size(image.size, name=name, limits=limits)
            image.draft(None, (limits.keep_side, limits.keep_side))  # JPEG only: decodes at 1/2, 1/4 or 1/8
            image.load()
            if accepted == "PNG":
                _correct_png(image, data)
            return _to_pixels(image, name=name, limits=limits)
    except ImageError:
        raise
    except (PILImage.DecompressionBombWarning, PILImage.DecompressionBombError):
        raise ImageError(
            f"{name}: has more pixels than the {_megapixels(limits)} taken. Save it smaller."
        ) from None
    except MemoryError:
        raise ImageError(f"{name}: needs more memory than an image may use. Save it smaller.") from None
    # PIL's parsers raise nearly every kind of exception when a stranger's bytes are odd.
    except Exception as error:
        raise ImageError(
            f"{name}: {_describe_damage(error)} Get the file again, or save it anew as JPEG or PNG."
        ) from None


def load_decoders() -> None:
    """Import all of PIL that `decode` may need: a helper that has given up files cannot do so later."""
    from PIL import JpegImagePlugin, MpoImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

    # JPEG photos may report "MPO", and EXIF blocks are read by the TIFF plugin
    assert {JpegImagePlugin, MpoImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin}
    PILImage.preinit()


def png_bytes(image: Image) -> bytes:
    """The image as a PNG file, without loss: `read_image` of it gives an equal image."""
    file = io.BytesIO()
    PILImage.fromarray(image.pixels).save(file, "PNG")
    return file.getvalue()


def compress_as_jpeg(pixels: Pixels, *, quality: int) -> Pixels:
    """The pixels (H W 3) after saving them as a JPEG of that quality, 1 to 95, and reading it again."""
    file = io.BytesIO()
    PILImage.fromarray(pixels).save(file, "JPEG", quality=quality)
    with PILImage.open(file, formats=("JPEG",)) as image:
        return np.array(image)


_IN_PROCESS = threading.Lock()  # warning filters belong to the whole process: decode one image at a time

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: PILImage.Transpose.FLIP_LEFT_RIGHT,
    3: PILImage.Transpose.ROTATE_180,
    4: PILImage.Transpose.FLIP_TOP_BOTTOM,
    5: PILImage.Transpose.TRANSPOSE,
    6: PILImage.Transpose.ROTATE_270,
    7: PILImage.Transpose.TRANSVERSE,
    8: PILImage.Transpose.ROTATE_90,
}


# ---- from a path to bytes within the limits


def _path_name(source: str | os.PathLike[str]) -> str:
    text = os.fspath(source)
    return text if _is_web_address(text) else Path(text).name or text or "image"


def _is_web_address(text: str) -> bool:
    return text.lower().startswith(("http://", "https://", "http:/", "https:/", "ftp://", "data:"))


def _read_file(source: str | os.PathLike[str], *, name: str, limits: ImageLimits) -> bytes:
    text = os.fspath(source)
    if _is_web_address(text):
        raise ImageError(
            f"{name}: is a web address, and images are never fetched from the web. "
            "Save the image to disk and give its path."
        )
    try:
        status = Path(text).stat()
        if stat.S_ISDIR(status.st_mode):
            raise ImageError(f"{name}: is a folder, not an image. Give a file, or use read_folder.")
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{name}: is a device or a pipe, not a file. Give an image file.")
        if status.st_size > limits.max_bytes:
            raise ImageError(_too_many_bytes(status.st_size, name=name, limits=limits))
        with Path(text).open("rb") as file:
            return _check_nbytes(file.read(limits.max_bytes + 1), name=name, limits=limits)
    except FileNotFoundError:
        raise ImageError(f"{name}: there is no such file. Check the path.") from None
    except PermissionError:
        raise ImageError(f"{name}: may not be read by this user. Change its permissions.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ImageError(f"{name}: cannot be read ({why}). Check the path.") from None


def _check_nbytes(data: bytes, *, name: str, limits: ImageLimits) -> bytes:
    if not data:
        raise ImageError(f"{name}: is empty (0 bytes). Get the file again.")
    if len(data) > limits.max_bytes:
        raise ImageError(_too_many_bytes(len(data), name=name, limits=limits))
    return data


def _too_many_bytes(nbytes: int, *, name: str, limits: ImageLimits) -> str:
    mib, most_mib = nbytes / (1 << 20), limits.max_bytes / (1 << 20)
    return f"{name}: has {mib:.3g} MiB, but at most {most_mib:.3g} MiB are taken. Save it smaller."


# ---- from PIL images and arrays


def _pixels_from_memory(source: object, *, name: str, limits: ImageLimits) -> Pixels:
    if isinstance(source, np.ndarray):
        image = _array_to_pil(source, name=name, limits=limits)
    elif isinstance(source, PILImage.Image):
        image = source
    else:
        raise ImageError(
            f"{name}: is a {type(source).__name__}, which is no image. "
            "Give a path, bytes, a PIL image or a numpy array."
        )
    _check_size(image.size, name=name, limits=limits)
    try:
        with _IN_PROCESS, _strict_warnings():
            image.load()
            return _to_pixels(image, name=name, limits=limits)
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError(f"{name}: {_describe_damage(error)} Open and save it anew as JPEG or PNG.") from None


def _array_to_pil(array: NDArray[Any], *, name: str, limits: ImageLimits) -> PILImage.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] not in (3, 4)):
        channels_first = array.shape[:1] in ((1,), (3,), (4,))
        hint = " Channels come last: use array.transpose(1, 2, 0)." if channels_first else ""
        raise ImageError(
            f"{name}: has shape {array.shape}, but (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) is needed.{hint}"
        )
    _check_size((array.shape[1], array.shape[0]), name=name, limits=limits)
    return PILImage.fromarray(np.ascontiguousarray(_as_uint8(array, name=name)))


def _as_uint8(array: NDArray[Any], *, name: str) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    if array.dtype.kind != "f":
        raise ImageError(
            f"{name}: is an array of {array.dtype}, but uint8, uint16 or floats from 0 to 1 are needed. "
            "Convert it with array.astype('uint8')."
        )
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # also true of NaN
        raise ImageError(
            f"{name}: has floats from {low:g} to {high:g}, but 0 to 1 is needed. "
            "Divide by the largest possible value, or convert to uint8."
        )
    return np.rint(array.astype(np.float32) * 255).astype(np.uint8)


# ---- from a loaded PIL image to upright RGB pixels of the size we keep


def _to_pixels(image: PILImage.Image, *, name: str, limits: ImageLimits) -> Pixels:
    turn = _UPRIGHT.get(_orientation(image))
    small = _shrink(_as_8_bit(image, name=name), limits=limits)
    rgb = _on_white(small)
    return np.asarray(rgb if turn is None else rgb.transpose(turn))


def _check_size(size: tuple[int, int], *, name: str, limits: ImageLimits) -> None:
    width, height = size
    shape = f"{name}: is {width} × {height} pixels"
    if min(size) < limits.min_side:
        raise ImageError(f"{shape}, but each side needs at least {limits.min_side}. Use a larger image.")
    if width * height > limits.max_pixels:
        raise ImageError(f"{shape}, more than the {_megapixels(limits)} taken. Save it smaller.")
    if max(size) > limits.max_aspect * min(size):
        raise ImageError(f"{shape}, more than {limits.max_aspect:g} times as long as wide. Crop it.")


def _correct_png(image: PILImage.Image, data: bytes) -> None:
    """What PIL does not do: refuse a file without an end, and scale the transparent colour to 8 bits."""
    if b"IEND" not in data:
        raise EOFError("truncated behind the last pixel")
    depth, colour = data[24], image.info.get("transparency")
    if image.mode == "RGB" and isinstance(colour, tuple) and depth == 16:
        image.info["transparency"] = tuple(value >> 8 for value in colour)
    if image.mode == "L" and isinstance(colour, int) and depth in (2, 4):
        image.info["transparency"] = colour * (255 // ((1 << depth) - 1))


def _as_8_bit(image: PILImage.Image, *, name: str) -> PILImage.Image:
    """Modes of more than 8 bits scaled to 8 (the high byte, as PIL does for 16-bit colour), not clipped."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        return image
    values: NDArray[Any] = np.asarray(image)
    if image.mode == "I" and (values.min() < 0 or values.max() > 0xFFFF):
        raise ImageError(
            f"{name}: has values from {values.min()} to {values.max()}, but 0 to 65535 is needed."
        )
    grey = _as_uint8(values if image.mode == "F" else values.astype(np.uint16), name=name)
    colour = image.info.get("transparency")
    if isinstance(colour, int):
        alpha = np.where(values == colour, 0, 255).astype(np.uint8)
        return PILImage.fromarray(np.stack([grey, alpha], axis=-1))
    return PILImage.fromarray(grey)


def _shrink(image: PILImage.Image, *, limits: ImageLimits) -> PILImage.Image:
    """The image with a short side of at most `keep_side` and at most `keep_pixels` pixels."""
    if image.mode in ("P", "PA", "1") or "transparency" in image.info:
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    short, pixels = min(image.size), math.prod(image.size)
    scale = min(1.0, limits.keep_side / short)
    width, height = (max(min(limits.keep_side, side), round(side * scale)) for side in image.size)
    if width * height > limits.keep_pixels:  # a panorama: its short side gets shorter than `keep_side`
        scale = math.sqrt(limits.keep_pixels / pixels)
        width, height = (max(1, int(side * scale)) for side in image.size)
    if (width, height) == image.size:
        return image
    return image.resize((width, height), PILImage.Resampling.BICUBIC, reducing_gap=2.0)


def _on_white(image: PILImage.Image) -> PILImage.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.convert("RGBA")
    return PILImage.alpha_composite(PILImage.new("RGBA", clear.size, "white"), clear).convert("RGB")


def _orientation(image: PILImage.Image) -> int:
    # An image with a broken EXIF block is still an image: it is taken as it lies.
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:
        return 1


@contextlib.contextmanager
def _strict_warnings() -> Iterator[None]:
    """Make PIL's warning of a decompression bomb an error, and ignore its warnings about odd metadata."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PILImage.DecompressionBombWarning)
        yield


def _describe_damage(error: Exception) -> str:
    cut = "truncated" in str(error).lower() or isinstance(error, EOFError)
    return "is cut short (truncated)." if cut else "is damaged and cannot be decoded."


def _megapixels(limits: ImageLimits) -> str:
    return f"{limits.max_pixels / 1e6:g} million pixels"
