"""A model hub on this machine: the few routes that the real client asks, over folders of real files.

    with HubServer(folder) as hub:                      # folder/owner/name/model.safetensors, …
        point_client_at(hub.address, cache, monkeypatch)
        hub.cut("owner/name", "model.safetensors")      # ends one answer in the middle of its body

As on the real hub, a repository is listed with sizes and, for weights, sha256 (`/api/models/…?blobs=true`),
and a file is described by HEAD and sent by GET, in part where a Range is asked for (`/…/resolve/main/…`).

It takes uploads too, from clients with its token: a repository is created, weights are sent by their sha256
(Git LFS, as the client does where `HF_HUB_DISABLE_XET` is set), and a commit puts all files in their places.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

STORED_BY_HASH = (".safetensors", ".bin", ".pt", ".pth")  # as large files: by sha256, not by git's own hash
_LISTING = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)")
_PREUPLOAD = re.compile(r"/api/models/([^/]+/[^/]+)/preupload/main")
_LFS_BATCH = re.compile(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch")
_COMMIT = re.compile(r"/api/models/([^/]+/[^/]+)/commit/main")
TOKEN = "hf_only-for-tests"  # what a client has to show to write


@dataclass
class HubServer:
    """A server over `folder`; `requests` are what it was asked for: method, path and Range."""

    folder: Path
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    cuts: dict[str, int] = field(default_factory=dict)  # how often to cut the answers to a path
    announced: dict[str, str] = field(default_factory=dict)  # another sha256 than the file's own
    private: dict[str, bool] = field(default_factory=dict)  # repositories that clients made
    objects: dict[str, bytes] = field(default_factory=dict)  # weights that arrived, by sha256

    def __enter__(self) -> HubServer:
        handler = type("BoundHandler", (_Handler,), {"hub": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def cut(self, repository: str, name: str, *, times: int = 1) -> None:
        """End the next answers with this file after half of its bytes."""
        self.cuts[f"{repository}/{name}"] = times

    def announce(self, repository: str, name: str, sha256: str) -> None:
        """Announce another sha256 for a file than it has."""
        self.announced[f"{repository}/{name}"] = sha256

    def sent(self, name: str) -> list[str]:
        """The Range ("" if none) of each GET of a file of that name."""
        return [span for method, path, span in self.requests if method == "GET" and path.endswith(f"/{name}")]

    def commit(self, repository: str) -> str:
        """The commit of a repository: another one after every push."""
        files = sorted(path for path in (self.folder / repository).rglob("*") if path.is_file())
        return hashlib.sha1(b"".join(path.read_bytes() for path in files)).hexdigest()

    def sha256(self, repository: str, name: str) -> str:
        own = hashlib.sha256((self.folder / repository / name).read_bytes()).hexdigest()
        return self.announced.get(f"{repository}/{name}", own)


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(("POST", path, ""))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send_json({"error": "Invalid credentials"}, status=401)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._send_json({"errors": [], "warnings": []})
        elif _PREUPLOAD.fullmatch(path):
            self._send_json({"files": [self._upload_mode(file) for file in json.loads(body)["files"]]})
        elif _LFS_BATCH.fullmatch(path):
            self._send_json({"objects": [self._place(item) for item in json.loads(body)["objects"]]})
        elif match := _COMMIT.fullmatch(path):
            self._commit(match[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._send_json({}, status=404)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.hub.objects[hashlib.sha256(data).hexdigest()] = data
        self._send(200, b"", {}, with_body=False)

    def _create(self, asked: dict[str, object]) -> None:
        repository = f"{asked['organization']}/{asked['name']}"
        is_private = asked.get("private") is True or asked.get("visibility") == "private"
        known = repository in self.hub.private
        self.hub.private.setdefault(repository, is_private)
        (self.hub.folder / repository).mkdir(parents=True, exist_ok=True)
        self._send_json(
            {"url": f"{self.hub.address}/{repository}", "id": repository}, status=409 if known else 200
        )

    def _upload_mode(self, file: dict[str, str]) -> dict[str, object]:
        mode = "lfs" if file["path"].endswith(STORED_BY_HASH) else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _place(self, item: dict[str, object]) -> dict[str, object]:
        upload = {"href": f"{self.hub.address}/lfs/{item['oid']}"}
        return {"oid": item["oid"], "size": item["size"], "actions": {"upload": upload}}

    def _commit(self, repository: str, lines: list[dict[str, dict[str, str]]]) -> None:
        root = self.hub.folder / repository
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                (root / value["path"]).write_bytes(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                (root / value["path"]).write_bytes(self.hub.objects[value["oid"]])
        commit = self.hub.commit(repository)
        address = f"{self.hub.address}/{repository}/commit/{commit}"
        self._send_json({"success": True, "commitOid": commit, "commitUrl": address})

    def _send_json(self, value: object, *, status: int = 200) -> None:
        headers = {"Content-Type": "application/json"}
        self._send(status, json.dumps(value).encode(), headers, with_body=True)

    def log_message(self, *_: object) -> None:
        return

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        if path == "/":
            self._send(200, b"", {}, with_body=with_body)
        elif match := _LISTING.fullmatch(path):
            self._send_listing(match[1], with_body=with_body)
        elif match := _FILE.fullmatch(path):
            self._send_file(match[1], match[2], with_body=with_body)
        else:
            self._send(404, b"", {}, with_body=with_body)

    def _send_listing(self, repository: str, *, with_body: bool) -> None:
        root = self.hub.folder / repository
        if not root.is_dir():
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)
            return
        siblings = []
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            name, size = file.relative_to(root).as_posix(), file.stat().st_size
            row = {"rfilename": name, "size": size, "blobId": "b" * 40}
            if file.suffix in STORED_BY_HASH:
                row["lfs"] = {"size": size, "sha256": self.hub.sha256(repository, name), "pointerSize": 134}
            siblings.append(row)
        listing = {
            "id": repository,
            "modelId": repository,
            "sha": self.hub.commit(repository),
            "siblings": siblings,
        }
        headers = {"Content-Type": "application/json"}
        self._send(200, json.dumps(listing).encode(), headers, with_body=with_body)

    def _send_file(self, repository: str, name: str, *, with_body: bool) -> None:
        file = self.hub.folder / repository / name
        headers = {"X-Repo-Commit": self.hub.commit(repository), "Accept-Ranges": "bytes"}
        if not file.is_file():
            known = (self.hub.folder / repository).is_dir()
            headers["X-Error-Code"] = "EntryNotFound" if known else "RepoNotFound"
            self._send(404, b"", headers, with_body=with_body)
            return
        data, status = file.read_bytes(), 200
        headers["ETag"] = f'"{hashlib.sha1(data).hexdigest()}"'
        if file.suffix in STORED_BY_HASH:
            headers |= {
                "X-Linked-Size": str(len(data)),
                "X-Linked-Etag": f'"{self.hub.sha256(repository, name)}"',
            }
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(asked[1]), int(asked[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            data, status = data[start : end + 1], 206
        cuts_left = self.hub.cuts.get(f"{repository}/{name}", 0)
        is_cut = with_body and cuts_left > 0
        if is_cut:
            self.hub.cuts[f"{repository}/{name}"] = cuts_left - 1
        self._send(status, data, headers, with_body=with_body, is_cut=is_cut)

    def _send(
        self, status: int, data: bytes, headers: dict[str, str], *, with_body: bool, is_cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data[: len(data) // 2] if is_cut else data)
        if is_cut:
            self.close_connection = True


def point_client_at(address: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the hub's client in this process ask `address`, and keep what it fetches in `cache`."""
    from huggingface_hub import constants, file_download

    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))


def environment_for(address: str, home: Path) -> dict[str, str]:
    """The environment of another process that is to ask `address`, with caches of its own below `home`."""
    own = {"HF_ENDPOINT": address, "HF_HOME": str(home / "hf"), "ATLAS_CACHE": str(home / "atlas")}
    return {name: value for name, value in os.environ.items() if not name.startswith("HF_")} | own
