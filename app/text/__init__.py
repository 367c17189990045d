"""Every word that a visitor or a program reads, one module per part of the page.

    from app import text
    text.teach.TAB, text.result.counts(4, 14, 16)

The sentences about bad input that come from the engine are the engine's own.
"""

from __future__ import annotations

from app.text import (
    api,
    ask,
    camera,
    forget,
    home,
    inside,
    language,
    model,
    page,
    replicas,
    result,
    server,
    share,
    takeaway,
    task_vectors,
    teach,
    trying,
    unlabelled,
)

__all__ = [
    "api",
    "ask",
    "camera",
    "forget",
    "home",
    "inside",
    "language",
    "model",
    "page",
    "replicas",
    "result",
    "server",
    "share",
    "takeaway",
    "task_vectors",
    "teach",
    "trying",
    "unlabelled",
]
