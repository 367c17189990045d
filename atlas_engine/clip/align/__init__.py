"""How the bundled model was made: pre-trained towers from packages, joined in a sentence encoder's space.

    towers      → the two ImageNet towers, out of their packages
    vocabulary  → the thousand ImageNet names, read by the text tower
    lesson      → images, their labels, and the concepts as vectors
    batches     → crops and styles
    train       → the image tower learns from itself
    project     → the projection learns to find the concepts
    compare     → why this image tower
    baseline    → what must be beaten

Needed only to rebuild the model; the `align` extra installs what it takes.
"""
