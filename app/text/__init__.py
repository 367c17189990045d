"""Every word that a visitor or a program reads, one module per part of the page.

    from app import text
    text.ask.LEAD, text.forget.share(0.37, 0.2)

The sentences about bad input that come from the engine are the engine's own.
"""

from __future__ import annotations

from app.text import api, ask, forget, inside, model, page, result, takeaway, task_vectors, teach, unlabelled

__all__ = [
    "api",
    "ask",
    "forget",
    "inside",
    "model",
    "page",
    "result",
    "takeaway",
    "task_vectors",
    "teach",
    "unlabelled",
]
