"""`python -m studies.load_test.attack`: attack a server of our own on loopback, and write what came of it.

    python -m studies.load_test.attack                              the short form, about ten minutes
    python -m studies.load_test.attack --clients 20 50 200 --soak-seconds 3600 --inputs 2000 \
        --write assets/bench/ATTACK.md                               the long form
    python -m studies.load_test.attack --only soak --soak-seconds 3600 --merge assets/bench/ATTACK.md
                                                                    one row of the table, an hour and some

Nothing leaves this machine: the server is started here, listens on 127.0.0.1, and ends with the command.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from atlas_engine.views.tables import table
from studies.load_test.attacks import ATTACKS, AttackOutcome, AttackScale, load
from studies.load_test.innocent import InnocentVisitor
from studies.load_test.server import ROOT, Server, start_server, stop_server

__all__ = ["AttackRow", "main"]

STALL_SECONDS = 2.0  # the longest that an innocent visitor's page may take under any attack
LOAD = "load: visitors at once"
FAULTS = ("SIGTERM", "SIGKILL, damaged cache", "a damaged bank")  # measured together, after everything else
HEADINGS = ("attack", "tried", "crashed", "hung", "wrong", "longest page", "held", "more")


@dataclass(frozen=True)
class AttackRow:
    """An attack, what came of it, and the longest that an innocent visitor's page took meanwhile."""

    name: str
    outcome: AttackOutcome
    stall: float | None = None
    failures: int = 0  # fetches of the innocent visitor that were not answered

    @property
    def held(self) -> bool:
        """Whether the server held: nothing crashed, hung or went wrong, and the page always came in time."""
        in_time = self.stall is None or self.stall <= STALL_SECONDS
        return self.outcome.held and in_time and not self.failures

    def cells(self) -> tuple[str, ...]:
        """As a row of the table."""
        one = self.outcome
        counts = (str(one.tried), str(one.crashed), str(one.hung), str(one.wrong))
        stall = "" if self.stall is None else f"{self.stall:.2f} s"
        lost = f"the page failed {self.failures} times" if self.failures else ""
        note = "; ".join(part for part in (one.note, lost) if part)
        return (self.name, *counts, stall, "yes" if self.held else "NO", note)


def main(arguments: list[str] | None = None) -> int:
    """Attack, print a table, write the document; 1 when something did not hold."""
    given = _parser().parse_args(arguments)
    scale = AttackScale(given.inputs, tuple(given.clients), given.soak_seconds)
    titles = (*ATTACKS, LOAD, *FAULTS)
    unknown = [part for part in given.only if not any(part in title for title in titles)]
    if unknown:
        sys.stderr.write(f"no attack has {unknown[0]!r} in its name. There are: {'; '.join(titles)}.\n")
        return 2

    def is_chosen(title: str) -> bool:
        return not given.only or any(part in title for part in given.only)

    with TemporaryDirectory(prefix="atlas-attack-") as name:
        folder = Path(name)
        server = _start(folder)
        idle = server.resident_megabytes or 0.0
        rows: list[AttackRow] = []
        try:
            for title, attack in ATTACKS.items():
                if is_chosen(title):
                    rows.append(_measure(title, server, lambda one=attack: one(server, folder, scale)))
            if is_chosen(LOAD):
                rows += _measure_load(server, folder, scale)
            memory = (idle, server.peak_megabytes or 0.0, server.resident_megabytes or 0.0)
            if any(is_chosen(title) for title in FAULTS):
                rows += _measure_faults(server, folder)
        finally:
            stop_server(server)
    cells = [row.cells() for row in rows]
    sys.stdout.write(table(cells, HEADINGS) + "\n")
    facts = f"{memory[0]:.0f} MB idle, {memory[1]:.0f} MB at the peak, {memory[2]:.0f} MB at the end"
    sys.stdout.write(f"memory of the server: {facts}\n")
    command = f"python -m studies.load_test.attack {shlex.join(arguments or sys.argv[1:])}".rstrip()
    if given.write:
        given.write.write_text(_document(cells, facts, command=command), encoding="utf-8")
    if given.merge:
        merged = merge_rows(given.merge.read_text(encoding="utf-8"), cells, command=command)
        given.merge.write_text(merged, encoding="utf-8")
    return 0 if all(row.held for row in rows) else 1


def _measure(title: str, server: Server, attack: object) -> AttackRow:
    assert callable(attack)
    _say(f"{title} …")
    with InnocentVisitor(server.address) as innocent:
        time.sleep(0.3)
        try:
            outcome = attack()
        except (
            Exception
        ) as error:  # an attack that cannot be carried out is told of, and the next one is tried
            outcome = AttackOutcome(1, crashed=1, note=f"{type(error).__name__}: {error}"[:120])
    row = AttackRow(title, outcome, innocent.longest_seconds, innocent.failures)
    _say("  " + " | ".join(row.cells()[1:]))
    return row


def _measure_load(server: Server, folder: Path, scale: AttackScale) -> list[AttackRow]:
    rows = []
    with InnocentVisitor(server.address) as innocent:
        for count, outcome in load(server, folder, scale):
            rows.append(AttackRow(f"load: {count} visitors at once", outcome))
            _say("  " + " | ".join(rows[-1].cells()))
    if not rows:
        return []
    last = replace(rows[-1], stall=innocent.longest_seconds, failures=innocent.failures)
    return [*rows[:-1], last]


def _measure_faults(server: Server, folder: Path) -> list[AttackRow]:
    """The server itself is stopped and killed, and started with a damaged cache and a damaged bank."""
    uploads = folder / "uploads"
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(timeout=30)
    left = _files_below(uploads)
    note = f"exit {code} in {time.monotonic() - start:.1f} s, {left} files left"
    rows = [AttackRow(FAULTS[0], AttackOutcome(1, crashed=int(code != 0), wrong=left, note=note))]

    killed = _start(folder)
    with httpx.Client(timeout=60) as client:
        client.post(f"{killed.address}/gradio_api/upload", files={"files": ("cat.png", b"x" * 1000)})
    killed.process.kill()
    killed.process.wait()
    stop_server(killed)
    before = _files_below(uploads)
    (folder / "cache").mkdir(exist_ok=True)
    (folder / "cache" / "cache.db").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    again = _start(folder)
    ready = httpx.get(f"{again.address}/readyz", timeout=60).status_code
    left = _files_below(uploads)
    stop_server(again)
    note = f"{before} files after the kill, {left} after the next start; ready with a damaged cache: {ready}"
    rows.append(AttackRow(FAULTS[1], AttackOutcome(1, crashed=int(ready != 200), wrong=left, note=note)))
    return [*rows, _measure_damaged_bank(folder)]


def _measure_damaged_bank(folder: Path) -> AttackRow:
    damaged = folder / "bank.safetensors"
    shutil.copy(next((ROOT / "assets" / "bank").glob("*.safetensors")), damaged)
    with damaged.open("r+b") as file:
        file.truncate(damaged.stat().st_size - 100_000)
    server = _start(folder, ATLAS_BANK=str(damaged))
    answer = httpx.get(f"{server.address}/readyz", timeout=60)
    page = httpx.get(f"{server.address}/config", timeout=60)
    stop_server(server)
    told = (
        answer.status_code == 503 or "is answering" in page.text
    )  # not ready, or the bundled one under a banner
    note = f"/readyz {answer.status_code}, the page {page.status_code}"
    return AttackRow(
        FAULTS[2],
        AttackOutcome(1, crashed=int(page.status_code != 200), wrong=int(not told), note=note),
    )


def _start(folder: Path, **environment: str) -> Server:
    return start_server(folder, metrics=True, ATLAS_PROXIES="127.0.0.1", **environment)


def _files_below(folder: Path) -> int:
    return sum(path.is_file() and path.name != ".lock" for path in folder.rglob("*"))


def merge_rows(document: str, cells: list[tuple[str, ...]], *, command: str) -> str:
    """The document with these rows in place of those of the same attacks, and the command that made them.

    The other rows stay as an earlier command left them.
    """
    lines = document.splitlines()
    for row in cells:
        line = "| " + " | ".join(row) + " |"
        places = [at for at, old in enumerate(lines) if old.startswith(f"| {row[0]} |")]
        last = max(at for at, old in enumerate(lines) if old.startswith("| "))
        if places:
            lines[places[0]] = line
        else:
            lines.insert(last + 1, line)
    fences = [at for at, line in enumerate(lines) if line == "```"]
    made = f"{command}  # {', '.join(row[0] for row in cells)}"
    if made not in lines:
        lines.insert(fences[1], made)
    return "\n".join(lines) + "\n"


def _document(cells: list[tuple[str, ...]], memory: str, *, command: str) -> str:
    lines = [
        "# Attacks on the running server",
        "",
        "What one command measured, on a server of its own on loopback, while an innocent visitor opened the",
        f"page again and again. `longest page` is the longest that took; it may take {STALL_SECONDS:g} s.",
        "",
        "```",
        command,
        "```",
        "",
        f"Machine: {os.cpu_count()} cores, {platform.system()} {platform.machine()}, shared with other work.",
        f"Memory of the server: {memory}.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(row) + " |" for row in cells),
        "",
        "Each hole behind these attacks has a quick test in `tests/hostile`. The long form of the command",
        "(`--clients 20 50 200 --soak-seconds 3600 --inputs 2000`) runs the same for longer. The soak alone:",
        "",
        "```",
        "python -m studies.load_test.attack --only soak --soak-seconds 3600 --merge assets/bench/ATTACK.md",
        "```",
        "",
        "Only what the commands at the top really ran stands here; one with a name behind it made that row.",
        "",
    ]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m studies.load_test.attack",
        description="Attack a server of our own on loopback, within bounds, and say what held.",
        epilog="examples:\n  python -m studies.load_test.attack --write assets/bench/ATTACK.md\n"
        "  python -m studies.load_test.attack --only JSON 'zip bombs' --inputs 50\n"
        "  python -m studies.load_test.attack --only soak --soak-seconds 3600 --merge assets/bench/ATTACK.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = AttackScale()
    parser.add_argument("--inputs", type=int, default=usual.inputs, help=f"broken inputs ({usual.inputs})")
    parser.add_argument(
        "--clients", type=int, nargs="*", default=list(usual.clients), help="visitors at once (20)"
    )
    parser.add_argument(
        "--soak-seconds", type=float, default=usual.soak_seconds, help="seconds of the soak (60)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="run only attacks whose name has one of these in it",
    )
    parser.add_argument("--write", type=Path, help="write the table to this file, as Markdown")
    parser.add_argument("--merge", type=Path, help="put the rows into the table of this file")
    return parser


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
