"""One HTML file that answers images in a browser: the ONNX file and its runtime are inside, compressed.

    write_web_page(classifier, Path("folder"))       # index.html: open it from disk, or put it on any server

The runtime is onnxruntime-web from npm, on WebAssembly. The page's content policy lets it ask nothing of any
server.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path

from atlas_engine.config import assets_folder
from atlas_engine.data.image import DEFAULT_LIMITS
from atlas_engine.errors import ExportError
from atlas_engine.exporting.classifier import Classifier
from atlas_engine.exporting.onnx_model import make_onnx, require_onnx

__all__ = ["PAGE_FILE", "find_web_runtime", "page_nbytes", "require_web_page", "write_web_page"]

PAGE_FILE = "index.html"
TEMPLATE = Path(__file__).with_name("page.html")
PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
RUNTIME, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
RUNTIME_FOLDER = "ATLAS_ORT_WEB"  # the variable that names the package's folder
RUNTIME_NBYTES = 5_000_000  # of both files in the page
FACTS = ("classes", "model", "method", "reject_below", "temperature", "model_fingerprint", "bank_fingerprint")


def require_web_page() -> None:
    """Raise an `ExportError` that says what to install unless pages can be made."""
    require_onnx()
    find_web_runtime()


def write_web_page(classifier: Classifier, folder: Path, *, int8: bool = False) -> None:
    """Write index.html to a folder."""
    runtime = find_web_runtime()
    described = classifier.describe()
    facts = json.dumps({name: described[name] for name in FACTS}, ensure_ascii=False)
    parts = {  # in the order of their places in the template
        "@FACTS@": facts.replace("<", "\\u003c"),  # a class may be called </script>
        "@RUNTIME@": _packed((runtime / RUNTIME).read_bytes()),
        "@WASM@": _packed((runtime / WASM).read_bytes()),
        "@MODEL@": _packed(make_onnx(classifier, int8=int8).SerializeToString()),
        "@KEPT_SIDE@": str(DEFAULT_LIMITS.keep_side),
    }
    pieces = [TEMPLATE.read_text(encoding="utf-8")]
    for place, content in parts.items():  # only what is left of the template is searched, never a content
        before, after = pieces.pop().split(place)
        pieces += [before, content, after]
    (folder / PAGE_FILE).write_text("".join(pieces), encoding="utf-8")


def page_nbytes(weights_nbytes: int) -> int:
    """About how many bytes a page takes, from the bytes of the weights: base64 adds a third."""
    return RUNTIME_NBYTES + weights_nbytes * 4 // 3


def find_web_runtime() -> Path:
    """The folder with onnxruntime-web's files; an `ExportError` says how to get it."""
    given = os.environ.get(RUNTIME_FOLDER)
    packages = (
        [Path(given)]
        if given
        else [root / "node_modules" / PACKAGE for root in (Path.cwd(), assets_folder().parent)]
    )
    for folder in (place for package in packages for place in (package / "dist", package)):
        if (folder / RUNTIME).is_file() and (folder / WASM).is_file():
            return folder
    where = f"in '{given}', which {RUNTIME_FOLDER} names" if given else "here"
    raise ExportError(
        f"a web page needs {PACKAGE}, which is not {where}. Run: npm install {PACKAGE}@{VERSION} — or set "
        f"{RUNTIME_FOLDER} to the folder of that package."
    )


def _packed(data: bytes) -> str:
    """gzip, as base64; the same bytes every time."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode("ascii")
