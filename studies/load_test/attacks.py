"""Attacks on a running server of our own, each bounded in count and time, and what came of them.

An attack gives an `AttackOutcome`: how many inputs were tried, how many of them crashed something, hung or
were answered wrongly, and a few words on what else counts. `attack` runs them all while an innocent visitor
opens the page.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

import httpx
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from gradio_client.utils import QueueError

from app.examples import ASK_EXAMPLES, FEW_SHOT_EXAMPLES
from app.limits import LIMITS
from studies.load_test.hostile_inputs import broken_files, broken_json, costly_jpeg, large_images, zip_bomb
from studies.load_test.server import Server

__all__ = ["ATTACKS", "Attack", "AttackOutcome", "AttackScale", "read_gauge"]

EVIL = "127.0.0.66"  # another address of this machine: not the innocent visitor's
PATIENCE = 60.0
API = "/gradio_api"
ROUTES = (
    "process_recording",
    "deep_link",
    "dev/reload",
    "file/etc/passwd",
    "proxy=http://127.0.0.1/",
    "token",
)
FLOODED = 600  # connections
IDLE_SECONDS = 10.0


@dataclass(frozen=True)
class AttackScale:
    """How much of each attack: the bounds of the whole."""

    inputs: int = 200
    clients: tuple[int, ...] = (20,)
    soak_seconds: float = 60.0


@dataclass(frozen=True)
class AttackOutcome:
    """What came of an attack."""

    tried: int
    crashed: int = 0
    hung: int = 0
    wrong: int = 0
    note: str = ""

    @property
    def held(self) -> bool:
        """Whether nothing crashed, hung or was answered wrongly."""
        return not (self.crashed or self.hung or self.wrong)


Attack = Callable[[Server, Path, AttackScale], AttackOutcome]


def client_from(source: str = EVIL) -> httpx.Client:
    """A client that connects from another address of this machine."""
    return httpx.Client(transport=httpx.HTTPTransport(local_address=source), timeout=PATIENCE)


def visitor(server: Server, number: int) -> Client:
    """A client of the endpoints with an address of its own: loopback is a trusted proxy here."""
    forwarded = f"198.51.{100 + number // 250}.{number % 250 + 1}"
    return Client(
        server.address,
        verbose=False,
        headers={"x-forwarded-for": forwarded},
        download_files=False,
        httpx_kwargs={"timeout": PATIENCE},  # by default it gives up after 5 s, as on a busy machine it must
    )


def read_gauge(server: Server, name: str) -> float:
    """A number of the server's metrics; NaN where it is not there."""
    said = httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=PATIENCE).text
    found = re.search(rf"^{name} (\S+)$", said, re.MULTILINE)
    return float(found[1]) if found else float("nan")


def _refused_streams(server: Server) -> float:
    """How many requests for the stream of answers were not served: gradio_client takes that for its end."""
    said = httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=PATIENCE).text
    rows = re.findall(r'^\w+\{([^}]*route="queue/data"[^}]*)\} (\S+)$', said, re.MULTILINE)
    return sum(float(number) for labels, number in rows if '"200"' not in labels)


# ---- requests


def attack_nothing(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001 - as all attacks
    """No attack: how long the page takes on this machine at this moment, for comparison."""
    time.sleep(IDLE_SECONDS)
    busy = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return AttackOutcome(0, note=f"load of the machine {busy} on {os.cpu_count()} cores")


def attack_routes(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001 - as all attacks
    """Routes that Gradio has and the page does not need, by every method."""
    codes = []
    with client_from() as client:
        for path in ROUTES:
            for method in ("GET", "POST", "PUT", "DELETE"):
                codes.append(client.request(method, f"{server.address}{API}/{path}").status_code)
    return AttackOutcome(
        len(codes), crashed=sum(code >= 500 for code in codes), wrong=sum(code < 400 for code in codes)
    )


def attack_json(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Broken JSON wherever JSON is posted."""
    paths = ("queue/join", "run/predict", "call/predict", "call/adapt", "cancel")
    codes = []
    with client_from() as client:
        for number, body in enumerate(broken_json(scale.inputs)):
            url = f"{server.address}{API}/{paths[number % len(paths)]}"
            codes.append(
                client.post(url, content=body, headers={"content-type": "application/json"}).status_code
            )
            time.sleep(0.01)
    failed = sum(code == 500 for code in codes)
    refused = sum(400 <= code < 500 for code in codes)
    return AttackOutcome(len(codes), note=f"{refused} refused, {failed} answered with Gradio's error")


def attack_large_json(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """60 MiB of JSON to an event by its number, as uploads were once mistaken for; twenty at a time."""
    body = b'{"fn_index": 0, "data": ["' + b"x" * (60 << 20) + b'"]}'
    paths = ("run/upload", "upload", "run/predict", "queue/join")

    def post(number: int) -> int:
        with client_from() as client:
            try:
                url = f"{server.address}{API}/{paths[number % len(paths)]}"
                return client.post(
                    url, content=body, headers={"content-type": "application/json"}
                ).status_code
            except httpx.TransportError:
                return 413  # it hung up while we were sending

    with ThreadPoolExecutor(20) as senders:
        codes = list(senders.map(post, range(20)))
    return AttackOutcome(len(codes), crashed=sum(c >= 500 for c in codes), wrong=sum(c < 400 for c in codes))


def attack_requests(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """A flood of requests for the page by one client."""

    def ask(_: int) -> int:
        with client_from() as client:
            return sum(client.get(f"{server.address}/config").status_code == 429 for _ in range(100))

    with ThreadPoolExecutor(10) as askers:
        slowed = sum(askers.map(ask, range(10)))
    return AttackOutcome(1000, note=f"{slowed} were told to wait")


def attack_connections(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Half-open connections, and bodies that never come."""
    where = urlsplit(server.address)
    lines: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for number in range(FLOODED):
            try:
                line = socket.create_connection(
                    (where.hostname, where.port or 80), timeout=5, source_address=(EVIL, 0)
                )
                stack.callback(line.close)
                head = (
                    b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
                )
                line.sendall(head if number % 2 else b"GET / HTTP/1.1\r\nHo")
                lines.append(line)
            except OSError:
                continue
        time.sleep(LIMITS.body_seconds + 5)
        left = read_gauge(server, "atlas_connections")
    return AttackOutcome(
        FLOODED,
        hung=int(left > 60),
        note=f"{left:.0f} connections left after {LIMITS.body_seconds + 5:.0f} s",
    )


def attack_announcements(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Uploads that announce much and send nothing: they may not take the room of others."""
    where, codes = urlsplit(server.address), []
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            line = stack.enter_context(
                socket.create_connection(
                    (where.hostname, where.port or 80), timeout=PATIENCE, source_address=(EVIL, 0)
                )
            )
            length = 390 << 20
            line.sendall(
                f"POST {API}/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
                "Content-Type: multipart/form-data; boundary=edge\r\n\r\n--edge\r\n".encode()
            )
            codes.append(line)
        time.sleep(1)
        refused = 0
        for line in codes:
            line.settimeout(0.2)
            with contextlib.suppress(OSError):
                refused += b" 507 " in line.recv(100)
    kept = [
        path
        for path in (server.folder / "uploads").rglob("*")
        if path.is_file() and path.stat().st_size > 10**6
    ]
    return AttackOutcome(6, wrong=len(kept), note=f"{refused} refused for want of room")


# ---- files


def attack_files(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:
    """Broken images and zips, asked about and learned from."""
    files = broken_files(scale.inputs, folder)
    images = [path for path in files if path.suffix != ".zip"]
    zips = [path for path in files if path.suffix == ".zip"][:20]
    client, crashed, hung, told = visitor(server, 1), 0, 0, 0
    for start in range(0, len(images), LIMITS.images):
        batch = images[start : start + LIMITS.images]
        answer, failed = _predict(client, batch)
        crashed += failed
        told += len(answer["rows"]) + len(answer["left_out"]) if answer else 0
    for path in zips:
        try:
            client.predict(
                archive=handle_file(path), samples=[], method="text-probe", steps=1, api_name="/adapt"
            )
        except (AppError, QueueError) as refusal:
            crashed += "our side" in str(refusal)
    client.close()
    wrong = len(images) - told if not crashed else 0
    return AttackOutcome(
        len(images) + len(zips), crashed=crashed, hung=hung, wrong=wrong, note=f"{told} images told of"
    )


def attack_stop_while_reading(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Images that take long to decode; Stop is pressed while they are read."""
    slow = costly_jpeg(folder / "slow.jpg")
    archive = folder / "slow.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for number in range(40):
            packed.write(slow, f"{'ab'[number % 2]}/{number}.jpg")
    client = visitor(server, 2)
    job = client.submit(archive=handle_file(archive), samples=[], api_name="/adapt")
    end = time.monotonic() + PATIENCE
    while not job.outputs() and not job.done() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.5)
    pressed = time.monotonic()
    client.predict(api_name="/stop")
    said = ""
    try:
        job.result(timeout=PATIENCE)
    except (AppError, QueueError) as refusal:
        said = str(refusal)
    seconds = time.monotonic() - pressed
    client.close()
    wrong = int("Stopped" not in said)
    note = f"{slow.stat().st_size // 1000} kB each; stopped in {seconds:.2f} s"
    return AttackOutcome(40, hung=int(seconds > 2), wrong=wrong, note=note)


def attack_zip_bombs(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Zips that unpack to far more than they say, by eight clients at once."""
    bomb = zip_bomb(folder / "bomb.zip")
    streams = _refused_streams(server)

    def send(number: int) -> str:
        try:
            with contextlib.closing(visitor(server, 10 + number)) as client:
                client.predict(archive=handle_file(bomb), samples=[], api_name="/adapt")
            return "taken"
        except CancelledError:
            return "lost"  # the stream of its answers ended before the answer came
        except httpx.TimeoutException:
            return "hung"
        except (AppError, QueueError) as refusal:
            return str(refusal)

    with ThreadPoolExecutor(8) as senders:
        said = list(senders.map(send, range(8)))
    note = f"{bomb.stat().st_size // 1000} kB → 300 MB"
    if "lost" in said:
        note += (
            f"; {said.count('lost')} lost their stream, {_refused_streams(server) - streams:.0f} refused it"
        )
    crashed = sum("our side" in one or one == "lost" for one in said)
    return AttackOutcome(8, crashed=crashed, hung=said.count("hung"), wrong=said.count("taken"), note=note)


# ---- the lane


def attack_lane(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Thirty runs of one client; a visitor's question meanwhile."""
    archive = _example_zip(folder / "example.zip")
    evil = visitor(server, 60)
    jobs = [
        evil.submit(archive=handle_file(archive), samples=[], method="paper", steps=200, api_name="/adapt")
        for _ in range(30)
    ]
    time.sleep(3)
    asking, seconds = visitor(server, 61), []
    for _ in range(5):
        start = time.monotonic()
        _predict(asking, [Path(ASK_EXAMPLES[0].paths[0])])
        seconds.append(time.monotonic() - start)
    refused = sum(
        job.done() and isinstance(job.exception(), AppError | QueueError | ValueError) for job in jobs
    )
    for _ in range(10):
        evil.predict(api_name="/stop")
        time.sleep(0.3)
    evil.close()
    asking.close()
    wrong = int(refused < 30 - (1 + LIMITS.waiting_runs))
    return AttackOutcome(
        30, wrong=wrong, note=f"{refused} refused; a question took {max(seconds):.1f} s at most"
    )


def attack_unheard_jobs(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """Jobs whose sender never listens to their answers."""
    with client_from() as client:
        for _ in range(5):
            given: list[object] = [None, [], "auto", 100, 0, 0.1, ""]
            client.post(f"{server.address}{API}/call/adapt", json={"data": given})
    end = time.monotonic() + LIMITS.unheard_seconds + 15
    while time.monotonic() < end and read_gauge(server, "atlas_waiting_jobs"):
        time.sleep(1)
    left = read_gauge(server, "atlas_waiting_jobs")
    return AttackOutcome(5, hung=int(left), note=f"{left:.0f} left in the queue")


def attack_sessions(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """A new session with each request."""
    with client_from() as client:
        for _ in range(300):
            body: dict[str, object] = {"data": [], "fn_index": 0, "session_hash": uuid.uuid4().hex}
            client.post(f"{server.address}{API}/run/predict", json=body)
            time.sleep(0.02)
    held = read_gauge(server, "atlas_sessions")
    return AttackOutcome(300, wrong=int(held > LIMITS.sessions), note=f"{held:.0f} sessions held")


# ---- memory, load and faults


def attack_memory(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """The largest run that is allowed, of large images; the memory held afterwards."""
    before = server.resident_megabytes or 0.0
    images = large_images(24, folder)
    archive = folder / "large.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        nbytes = 0
        for number in range(LIMITS.support_images):
            image = images[number % len(images)]
            nbytes += image.stat().st_size
            if nbytes < (LIMITS.zip_megabytes - 1) << 20:
                packed.write(image, f"{'abcd'[number % 4]}/{number}.jpg")
    client = visitor(server, 70)
    samples = [handle_file(path) for path in images]
    client.predict(archive=handle_file(archive), samples=samples, steps=5, api_name="/adapt")
    peak = server.peak_megabytes or 0.0
    client.close()
    end, after = time.monotonic() + 45, server.resident_megabytes or 0.0
    while after > before + 200 and time.monotonic() < end:
        time.sleep(1)
        after = server.resident_megabytes or 0.0
    note = f"{before:.0f} MB before, {peak:.0f} MB at the peak, {after:.0f} MB after"
    return AttackOutcome(1, wrong=int(after > before + 200), note=note)


def load(server: Server, folder: Path, scale: AttackScale) -> list[tuple[int, AttackOutcome]]:  # noqa: ARG001
    """So many visitors at once, each with one question; by their number."""
    image = Path(ASK_EXAMPLES[0].paths[0])

    def visit(number: int) -> tuple[float, str]:
        start = time.monotonic()
        try:
            client = visitor(server, 100 + number)
        except Exception as error:  # whatever keeps a visitor from the page is what is counted
            return time.monotonic() - start, f"failed: {type(error).__name__}"
        try:
            answer, crashed = _predict(client, [image])
            kind = "answered" if answer else "crashed" if crashed else "refused"
            return time.monotonic() - start, kind
        finally:
            client.close()

    rows = []
    for count in scale.clients:
        with ThreadPoolExecutor(count) as visitors:
            visits = list(visitors.map(visit, range(count)))
        seconds = sorted(one for one, kind in visits if kind == "answered") or [float("nan")]
        cuts = quantiles(seconds, n=100) if len(seconds) > 1 else seconds * 99
        answered, refused = (sum(kind == what for _, kind in visits) for what in ("answered", "refused"))
        shares = ", ".join(f"p{share} {cuts[share - 1]:.1f} s" for share in (50, 95, 99))
        note = f"{answered} answered, {refused} told to wait; {shares}"
        rows.append((count, AttackOutcome(count, crashed=count - answered - refused, note=note)))
    return rows


def kill_decoder(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:  # noqa: ARG001
    """The helper process that reads images is killed between two questions."""
    image, client, crashed = Path(ASK_EXAMPLES[0].paths[0]), visitor(server, 80), 0
    for _ in range(3):
        for pid in _children(server.process.pid):
            os.kill(pid, signal.SIGKILL)
        answer, failed = _predict(client, [image])
        crashed += failed or not answer or not answer["rows"]
    client.close()
    return AttackOutcome(3, crashed=crashed, note="each next image was read")


def soak(server: Server, folder: Path, scale: AttackScale) -> AttackOutcome:
    """Questions and short runs, one after the other, for so many seconds: nothing may grow.

    Memory and descriptors are compared with those after a third of the time. Files stay for as long as the
    page promises, so their number is compared with that at the end of that time, where the soak is longer.
    """
    archive, image = _example_zip(folder / "soak.zip"), Path(ASK_EXAMPLES[0].paths[0])
    samples: list[_SoakSample] = []
    start, failed = time.monotonic(), 0
    while (seconds := time.monotonic() - start) < scale.soak_seconds:
        try:
            _visit_once(
                server, image, archive if len(samples) % 5 == 0 else None, number=300 + len(samples) % 200
            )
        except (
            httpx.HTTPError,
            CancelledError,
        ):  # one visit that fails is counted, and does not end the soak
            failed += 1
        samples.append(_SoakSample.of(server, seconds))
    return _judge_soak(samples, failed=failed, seconds=scale.soak_seconds)


@dataclass(frozen=True)
class _SoakSample:
    """What the server holds after a visit."""

    seconds: float
    megabytes: float
    files: int
    file_megabytes: float
    descriptors: int

    @classmethod
    def of(cls, server: Server, seconds: float) -> _SoakSample:
        sizes = []
        for path in (server.folder / "uploads").rglob("*"):
            with contextlib.suppress(OSError):  # swept away meanwhile
                if path.is_file():
                    sizes.append(path.stat().st_size)
        held, descriptors = server.resident_megabytes or 0.0, server.open_files or 0
        return cls(seconds, held, len(sizes), sum(sizes) / 1e6, descriptors)


def _visit_once(server: Server, image: Path, archive: Path | None, *, number: int) -> None:
    """A visitor with a question, and with a short run where there is something to learn from."""
    with contextlib.closing(visitor(server, number)) as client:
        _predict(client, [image])
        if archive is not None:
            with contextlib.suppress(AppError, QueueError):
                given = {"archive": handle_file(archive), "samples": [], "method": "text-probe", "steps": 1}
                client.predict(**given, api_name="/adapt")


def _judge_soak(samples: Sequence[_SoakSample], *, failed: int, seconds: float) -> AttackOutcome:
    """Whether memory, descriptors and files stayed flat."""
    warm, last = samples[len(samples) // 3], samples[-1]
    settled = next((one for one in samples if one.seconds > 60 * LIMITS.longest_stay_minutes), last)
    grew = [
        last.megabytes > warm.megabytes + 100,
        last.descriptors > warm.descriptors + 50,
        last.files > 1.25 * settled.files + 20,
    ]
    note = (
        f"{len(samples)} visits in {seconds:.0f} s, {failed} failed; memory {warm.megabytes:.0f} → "
        f"{last.megabytes:.0f} MB, files {warm.files} → {last.files} ({last.file_megabytes:.0f} MB), "
        f"descriptors {warm.descriptors} → {last.descriptors}"
    )
    return AttackOutcome(len(samples), crashed=failed, wrong=sum(grew), note=note)


def _predict(client: Client, images: Sequence[Path]) -> tuple[dict[str, list[object]] | None, bool]:
    """The answer to a question, and whether it failed as it should not: not by a refusal."""
    try:
        files = [handle_file(path) for path in images]
        return client.predict(images=files, classes="cat, rocket, cup", api_name="/predict"), False
    except (AppError, QueueError) as refusal:
        return None, "our side" in str(refusal)


def _example_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for row in FEW_SHOT_EXAMPLES[0].request.rows[:3]:
            for image in row.paths[:3]:
                packed.write(image, f"{row.name}/{Path(image).name}")
    return path


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    threads = found.parent.parent.glob("*/children") if found.exists() else []
    return [int(child) for listed in threads for child in listed.read_text(encoding="ascii").split()]


ATTACKS: dict[str, Attack] = {
    "nothing, for comparison": attack_nothing,
    "routes that the page does not need": attack_routes,
    "broken JSON": attack_json,
    "60 MiB of JSON, 20 at once": attack_large_json,
    "a flood of requests": attack_requests,
    "half-open connections": attack_connections,
    "uploads that only announce": attack_announcements,
    "broken images and zips": attack_files,
    "costly images, Stop while reading": attack_stop_while_reading,
    "zip bombs, 8 at once": attack_zip_bombs,
    "30 runs of one client": attack_lane,
    "jobs nobody listens to": attack_unheard_jobs,
    "a flood of sessions": attack_sessions,
    "the largest run that is allowed": attack_memory,
    "the image decoder is killed": kill_decoder,
    "soak": soak,
}
