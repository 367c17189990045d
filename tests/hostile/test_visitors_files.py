"""What the footnote promises of visitors' files: private, swept by age whatever happens, within a quota."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gradio as gr
import pytest
from starlette.testclient import TestClient

import app.storage
from app import text
from app.edge import EdgeState, RequestGuard
from app.limits import Limits
from app.metrics import Metrics
from app.routes import allowed_routes
from app.storage import NoRoomError, Storage, delete_abandoned, require_room
from app.uploads_route import upload_route
from tests.serving import ROOT

MEGABYTE = 1 << 20


@pytest.fixture
def storage(tmp_path):
    opened = Storage.open(
        tmp_path / "root", limits=Limits(storage_megabytes=4, visitor_megabytes=3, free_megabytes=1)
    )
    yield opened
    opened.close()


@pytest.fixture
def client(storage):
    """Gradio's server, behind the guard, with our door for files."""
    with gr.Blocks() as page:
        gr.File()
    own = [upload_route(page, storage, limits=Limits(), metrics=Metrics())]
    app = gr.routes.App.create_app(page, app_kwargs={"routes": own})
    return TestClient(
        RequestGuard(app, state=EdgeState(allowed_routes(page, own=own))), base_url="http://localhost"
    )


def files_in(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock"]


def send(client, *sizes):
    files = [("files", (f"{place}.png", os.urandom(size))) for place, size in enumerate(sizes)]
    return client.post("/gradio_api/upload", files=files)


def test_nobody_else_can_open_the_folder_and_everything_temporary_is_in_it(storage):
    for folder in (storage.folder, storage.uploads, storage.incoming, storage.scratch):
        assert folder.stat().st_mode & 0o777 == 0o700
    with tempfile.TemporaryDirectory() as unpacked:
        assert storage.folder in Path(unpacked).parents
    assert os.environ["GRADIO_TEMP_DIR"] == str(storage.uploads)


def test_a_folder_that_somebody_else_put_there_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    with pytest.raises(app.storage.atlas.AtlasError, match="ATLAS_VISITORS"):
        Storage.open(tmp_path / "root")


def test_files_go_by_age_and_younger_ones_stay(storage, monkeypatch):
    old = storage.uploads / "digest" / "old.png"
    old.parent.mkdir()
    old.write_bytes(b"x")
    assert storage.sweep() == 0
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1801)
    young = storage.uploads / "young.png"
    young.write_bytes(b"x")
    os.utime(young, (now + 1801,) * 2)
    assert storage.sweep() == 1
    assert files_in(storage.folder) == [young]
    assert not old.parent.exists()


def test_a_sweep_survives_uploads_that_come_and_go_meanwhile(storage):
    """Gradio's own sweeper dies of this, silently."""
    stop = threading.Event()

    def upload(number):
        while not stop.is_set():
            folder = storage.uploads / f"{number}"
            with contextlib.suppress(FileNotFoundError):  # the sweep took the folder
                folder.mkdir(exist_ok=True)
                (folder / "a.png").write_bytes(b"x" * 100)
            shutil.rmtree(folder, ignore_errors=True)

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            storage.sweep(seconds=0)
            storage.used_nbytes()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_after_a_kill_the_next_start_leaves_nothing_and_a_living_servers_files_stay(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from app.storage import Storage\n"
        "storage = Storage.open(Path(sys.argv[1])); (storage.uploads / 'cat.png').write_bytes(b'x')\n"
        "print('written', flush=True); time.sleep(60)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout.readline() == b"written\n"
        assert len(files_in(tmp_path)) == 2
        children[0].send_signal(signal.SIGKILL)
        children[0].wait()
        assert len(delete_abandoned(tmp_path, seconds=1800)) == 1
        assert len(files_in(tmp_path)) == 1, "the other server lives"
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdout.close()
    Storage.open(tmp_path).close()
    assert files_in(tmp_path) == []


def test_more_files_than_the_disk_should_hold_are_refused_kindly_and_room_comes_back(storage, client):
    with storage.admit("somebody", 2 * MEGABYTE):
        pass
    (storage.uploads / "large").write_bytes(bytes(3 * MEGABYTE))
    answer = send(client, 2 * MEGABYTE)
    assert (answer.status_code, answer.json()["detail"]) == (507, text.server.DISK_FULL)
    assert answer.headers["retry-after"]
    assert [path.name for path in files_in(storage.folder)] == ["large"]
    storage.sweep(seconds=0)
    assert send(client, MEGABYTE).status_code == 200


def test_one_visitor_does_not_take_the_room_of_all(storage, client):
    assert send(client, MEGABYTE).status_code == 200
    assert send(client, MEGABYTE).status_code == 200
    answer = send(client, MEGABYTE)
    assert (answer.status_code, answer.json()["detail"]) == (507, text.server.visitor_full(3))
    with storage.admit("another", MEGABYTE):
        pass


def test_a_disk_that_is_nearly_full_takes_no_file(storage, client, monkeypatch):
    usage = shutil.disk_usage(storage.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=MEGABYTE + 1000))
    assert send(client, 2000).status_code == 507
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=MEGABYTE))
    assert not storage.has_room
    with pytest.raises(NoRoomError):
        require_room(storage.scratch, 2000, limits=Limits(free_megabytes=1))


def test_a_disk_that_fills_up_meanwhile_keeps_nothing_of_the_upload(storage, client, monkeypatch):
    """What Gradio had begun used to stay, so that the disk stayed full."""
    from starlette.datastructures import UploadFile

    async def write(self, data):
        self.file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(UploadFile, "write", write)
    answer = send(client, 1000, 1000)
    assert (answer.status_code, answer.json()["detail"]) == (507, text.server.DISK_FULL)
    assert files_in(storage.folder) == []
    assert list(storage.incoming.iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--edge\r\n",
        b"no form at all",
        b"--edge\r\nContent-Disposition: form-data\r\n\r\nx\r\n--edge--\r\n",
    ],
)
def test_a_form_that_is_none_leaves_nothing(storage, client, body):
    headers = {"content-type": "multipart/form-data; boundary=edge"}
    answer = client.post("/gradio_api/upload", content=body, headers=headers)
    assert answer.status_code in (200, 400)
    assert files_in(storage.folder) == []
