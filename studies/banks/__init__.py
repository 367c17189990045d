"""What a bank of task vectors is good for: `atlas eval task-vectors|bits|selection`.

trials        → coefficients of a bank learned from a few shots, and their accuracy
task_vectors  → each task vector alone; cosines and norms of the vectors
bits          → the bank in fewer bits: size, time, fidelity, accuracy
selection     → some of the vectors, chosen for the problem
"""
