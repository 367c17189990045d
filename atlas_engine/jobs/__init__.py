"""Work that spreads over many tasks: banks trained and imported, features of large folders.

Each module makes tasks (`executors.task`), has the function that carries one out in a worker, and puts the
answers together in the order of the tasks. None knows which executor runs.
"""
