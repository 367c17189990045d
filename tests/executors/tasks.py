"""Small tasks, which leave marks in a folder."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import safetensors.torch
import torch

from atlas_engine.errors import SupportError
from atlas_engine.executors import Answer, Task, key_of


def square(number, folder):
    """Leaves a file behind, so that a test can count how often it ran; the first number takes longest."""
    mark(folder, f"ran {number}")
    time.sleep(0.3 if number == 0 else 0)
    tensors = {"square": torch.tensor([float(number)]) ** 2}
    return Answer({"number": number, "threads": torch.get_num_threads()}, safetensors.torch.save(tensors))


def refuse_odd(number, folder):
    if number % 2:
        raise SupportError(f"{number} is odd. Give an even one.")
    return square(number, folder)


def divide(number, folder):
    return Answer({"number": 1 / number})


def die_once(number, folder):
    """Kills its own process the first time that it is called, as a lack of memory does."""
    if not list(Path(folder).glob(f"died {number}.*")):
        mark(folder, f"died {number}")
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number, folder)


def die(number, folder):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever(number, folder):
    mark(folder, f"ran {number}")
    if number > 1:
        mark(folder, f"pid {os.getpid()}")
        time.sleep(600)
    return Answer({"number": number})


def mark(folder, name):
    (Path(folder) / f"{name}.{os.getpid()}.{time.monotonic_ns()}").touch()


def number_tasks(function, folder, *, count=4):
    return [
        Task(key_of(function.__name__, n), f"task {n}", function, {"number": n, "folder": str(folder)})
        for n in range(count)
    ]
