"""Counts of what the server does, as Prometheus reads them, on a port of their own.

    metrics = Metrics()
    metrics.count_request("queue/join", 200)
    metrics.watch("atlas_waiting_jobs", "Jobs that wait", lambda: 3)
    serve_metrics(metrics, port=9090)            # http://127.0.0.1:9090/metrics

They name routes, never addresses, sessions, files or words.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Metrics", "serve_metrics"]

BUCKETS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 180.0)  # seconds of a run
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters, and gauges that are read when asked for. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._runs: list[float] = [0.0] * (len(BUCKETS) + 1)
        self._run_seconds = 0.0
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def count_request(self, route: str, status: int) -> None:
        """An answer on a route of `app.routes`."""
        with self._lock:
            self._requests[route, status] += 1

    def count_refusal(self, reason: str) -> None:
        """A job, a file or a connection that was turned away, by a fixed word for the reason."""
        with self._lock:
            self._refusals[reason] += 1

    def count_run(self, seconds: float) -> None:
        """A run that has ended."""
        with self._lock:
            place = next((index for index, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))
            self._runs[place] += 1
            self._run_seconds += seconds

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A gauge whose value is asked for at each reading."""
        self._gauges[name] = (about, value)

    def as_text(self) -> str:
        """Everything in Prometheus' text format."""
        with self._lock:
            requests, refusals = sorted(self._requests.items()), sorted(self._refusals.items())
            runs, seconds = list(self._runs), self._run_seconds
        lines = [
            "# HELP atlas_requests_total Answers by route and status.",
            "# TYPE atlas_requests_total counter",
        ]
        lines += [
            f'atlas_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in requests
        ]
        lines += ["# HELP atlas_refusals_total What was turned away.", "# TYPE atlas_refusals_total counter"]
        lines += [f'atlas_refusals_total{{reason="{reason}"}} {count}' for reason, count in refusals]
        lines += ["# HELP atlas_run_seconds Seconds of runs.", "# TYPE atlas_run_seconds histogram"]
        total = 0.0
        for most, count in zip((*BUCKETS, None), runs, strict=True):
            total += count
            lines.append(f'atlas_run_seconds_bucket{{le="{"+Inf" if most is None else most:}"}} {total:g}')
        lines += [f"atlas_run_seconds_sum {seconds:g}", f"atlas_run_seconds_count {total:g}"]
        for name, (about, value) in sorted(self._gauges.items()):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {_read(value)}"]
        return "\n".join(lines) + "\n"


def serve_metrics(metrics: Metrics, *, port: int, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Serve `metrics` at /metrics in the background; an OSError where the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds for a request to come

        def do_GET(self) -> None:
            found = self.path == "/metrics"
            body = metrics.as_text().encode() if found else b"the metrics are at /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *values: object) -> None:
            """Nothing: a reading is no event."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="atlas-metrics", daemon=True).start()
    return server


def _read(value: Callable[[], float]) -> str:
    try:
        return f"{float(value()):.15g}"
    except Exception:  # one that cannot be read must not hide the others
        return "NaN"
