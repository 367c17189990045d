"""Replicas for the tests, in a process of their own: Ray is not to be imported where other tests run.

python -m tests.replicas.served FOLDER       prints PORT once all are ready; ends when stdin ends
"""

from __future__ import annotations

import socket
import sys

from app.replicas.trust import use_token

COUNTS = {"predict": 1, "try": 2, "adapt": 1}
QUEUE = 4


def main(folder: str) -> None:
    use_token()
    from app.replicas.application import Plan, serving

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(Plan(counts=COUNTS, queue=QUEUE, port=port, device="cpu", results=folder)):
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
