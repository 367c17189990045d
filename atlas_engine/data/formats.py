"""The kind of a file, recognised by its first bytes; file name endings are not trusted.

>>> describe_kind(b"GIF89a" + bytes(20))
'a GIF'
>>> accepted_format(b"GIF89a" + bytes(20)) is None
True
"""

from __future__ import annotations

from atlas_engine.class_names import is_legible

__all__ = [
    "ADVICE",
    "IMAGE_ENDINGS",
    "OTHER_IMAGE_ENDINGS",
    "accepted_format",
    "advice_for",
    "describe_kind",
    "printable_name",
]

ADVICE = "Save it as JPEG or PNG and try again."

IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp"})

# Images that are not accepted: leaving one out deserves a word of advice.
OTHER_IMAGE_ENDINGS = frozenset(
    {".apng", ".avif", ".bmp", ".cr2", ".dng", ".gif", ".heic", ".heif", ".ico", ".jp2", ".jxl"}
    | {".nef", ".pdf", ".psd", ".svg", ".tif", ".tiff"}
)

_PREFIXES: tuple[tuple[bytes, str], ...] = (
    (b"GIF87a", "a GIF"),
    (b"GIF89a", "a GIF"),
    (b"II*\x00", "a TIFF or camera RAW image"),
    (b"MM\x00*", "a TIFF or camera RAW image"),
    (b"II+\x00", "a TIFF image"),
    (b"MM\x00+", "a TIFF image"),
    (b"BM", "a BMP image"),
    (b"%PDF", "a PDF document"),
    (b"8BPS", "a Photoshop document"),
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"\x00\x00\x01\x00", "an icon file"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"MZ", "a Windows program"),
    (b"\x7fELF", "a Linux program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or Java class"),
    (b"#!", "a script"),
    (b"\x80\x04\x95", "a Python pickle"),
)

_BRANDS = {  # of an ISO media file, behind its `ftyp`
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "a HEIC photo"),
    **dict.fromkeys((b"avif", b"avis"), "an AVIF image"),
}

_NOT_IMAGES = ("program", "script", "pickle", "text file", "web page", "XML", "video", "no kind of image")


def accepted_format(data: bytes) -> str | None:
    """`JPEG`, `PNG` or `WEBP` by the first bytes; None for every other kind of file."""
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    return None


def describe_kind(data: bytes) -> str:
    """A noun with its article for a file that is not accepted: `a HEIC photo`, `a web page (HTML)`."""
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "a video or sound file")
    if data.startswith(b"RIFF"):
        return "a video or sound file"
    for prefix, noun in _PREFIXES:
        if data.startswith(prefix):
            return noun
    return _describe_text(data[:2048])


def advice_for(kind: str) -> str:
    """What to do with a file of that kind, as `describe_kind` names it.

    >>> advice_for("a HEIC photo"), advice_for("a gzip archive"), advice_for("a Windows program")
    ('Save it as JPEG or PNG and try again.', 'Unpack it and give its images.', 'Give an image instead.')
    """
    if "archive" in kind:
        return "Unpack it and give its images."
    return "Give an image instead." if any(word in kind for word in _NOT_IMAGES) else ADVICE


def printable_name(name: str, *, most: int = 120) -> str:
    """A stranger's file name, safe to show: one line of at most `most` legible characters.

    >>> printable_name("a\\nb.jpg")
    'a?b.jpg'
    """
    clean = "".join(char if is_legible(char) else "?" for char in name)
    return clean if len(clean) <= most else f"{clean[: most - 20]}…{clean[-19:]}"


def _describe_text(head: bytes) -> str:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in text:
        return "an SVG drawing"
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        return "a web page (HTML)"
    if text.startswith(b"<?xml"):
        return "an XML document"
    if text and all(byte >= 32 or byte in b"\t\r\n" for byte in text) and _is_utf8(text):
        return "a text file"
    return "no kind of image that we know"


def _is_utf8(text: bytes) -> bool:
    # The cut at 2048 bytes may fall inside a character, so the last three bytes do not count.
    try:
        text[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
