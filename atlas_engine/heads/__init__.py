"""Adapter heads: a few labelled features beside the class names. They know nothing of images or banks."""

from __future__ import annotations
