"""Tasks carried out here, in processes of this machine, or on a Ray cluster: one interface, three rows.

    with open_executor("ray", threads=1) as executor:
        for done in run_tasks(tasks, executor=executor, ledger=Ledger("bank.safetensors.tasks")):
            done.task, done.answer                              # in the order of the tasks

Knows nothing of models, banks and studies: a task is a function of a module with plain arguments (`task`).
What was done before is taken from the ledger, by a key of its content (`ledger`). How executors differ is in
`local`, `processes` and `on_ray`; nobody else needs to know which one runs.
"""

from __future__ import annotations

from atlas_engine.executors.ledger import Ledger, key_of
from atlas_engine.executors.registry import EXECUTORS, open_executor
from atlas_engine.executors.run import Done, run_tasks
from atlas_engine.executors.task import Answer, Executor, Task, here, task_facts

__all__ = [
    "EXECUTORS",
    "Answer",
    "Done",
    "Executor",
    "Ledger",
    "Task",
    "here",
    "key_of",
    "open_executor",
    "run_tasks",
    "task_facts",
]
