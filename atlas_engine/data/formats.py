"""What a file seems to be, told from its first bytes. Knows nothing of decoding, and never trusts an ending.

>>> seems_to_be(b"GIF89a" + bytes(20))
'a GIF'
>>> taken_format(b"GIF89a" + bytes(20)) is None
True
"""

from __future__ import annotations

from atlas_engine.class_names import is_legible

__all__ = [
    "ADVICE",
    "IMAGE_ENDINGS",
    "OTHER_IMAGE_ENDINGS",
    "advice_for",
    "printable",
    "seems_to_be",
    "taken_format",
]

ADVICE = "Save it as JPEG or PNG and try again."

IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp"})

# Pictures all the same, so that leaving them out deserves a word of advice.
OTHER_IMAGE_ENDINGS = frozenset(
    {".apng", ".avif", ".bmp", ".cr2", ".dng", ".gif", ".heic", ".heif", ".ico", ".jp2", ".jxl"}
    | {".nef", ".pdf", ".psd", ".svg", ".tif", ".tiff"}
)

_PREFIXES: tuple[tuple[bytes, str], ...] = (
    (b"GIF87a", "a GIF"),
    (b"GIF89a", "a GIF"),
    (b"II*\x00", "a TIFF or camera RAW picture"),
    (b"MM\x00*", "a TIFF or camera RAW picture"),
    (b"II+\x00", "a TIFF picture"),
    (b"MM\x00+", "a TIFF picture"),
    (b"BM", "a BMP picture"),
    (b"%PDF", "a PDF document"),
    (b"8BPS", "a Photoshop document"),
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 picture"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
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

_NO_PICTURES = ("program", "script", "pickle", "text file", "web page", "XML", "video", "no kind of picture")

_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "a HEIC photo"),
    **dict.fromkeys((b"avif", b"avis"), "an AVIF picture"),
}


def taken_format(data: bytes) -> str | None:
    """`JPEG`, `PNG` or `WEBP` where the first bytes say so; None for all that is not taken."""
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    return None


def seems_to_be(data: bytes) -> str:
    """A noun with its article for a file that is not taken: `a HEIC photo`, `a web page (HTML)`."""
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "a video or sound file")
    if data.startswith(b"RIFF"):
        return "a video or sound file"
    for prefix, noun in _PREFIXES:
        if data.startswith(prefix):
            return noun
    return _text_kind(data[:2048])


def advice_for(kind: str) -> str:
    """What to do about a file that seems to be of that kind.

    >>> advice_for("a HEIC photo"), advice_for("a gzip archive"), advice_for("a Windows program")
    ('Save it as JPEG or PNG and try again.', 'Unpack it and give its pictures.', 'Give a picture instead.')
    """
    if "archive" in kind:
        return "Unpack it and give its pictures."
    return "Give a picture instead." if any(word in kind for word in _NO_PICTURES) else ADVICE


def printable(name: str, *, most: int = 120) -> str:
    """A stranger's file name made safe to show: one line, no control or broken characters, not too long.

    >>> printable("a\\nb.jpg")
    'a?b.jpg'
    """
    clean = "".join(letter if is_legible(letter) else "?" for letter in name)
    return clean if len(clean) <= most else f"{clean[: most - 20]}…{clean[-19:]}"


def _text_kind(head: bytes) -> str:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in text:
        return "an SVG drawing"
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        return "a web page (HTML)"
    if text.startswith(b"<?xml"):
        return "an XML document"
    if text and all(byte >= 32 or byte in b"\t\r\n" for byte in text) and _is_utf8(text):
        return "a text file"
    return "no kind of picture that we know"


def _is_utf8(text: bytes) -> bool:
    # The cut at 2048 bytes may fall inside a letter, so the last three bytes do not count.
    try:
        text[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
