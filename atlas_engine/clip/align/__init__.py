"""How the bundled model was made: pre-trained towers from packages, joined in a sentence encoder's space.

    towers      → the two ImageNet towers, out of their packages
    vocabulary  → the thousand ImageNet names, read by the text tower
    teacher     → what the smaller tower's classifier says of each image
    batches     → pixels in memory, crops and styles
    train       → projection first, then the whole tower
    finish      → the projection once more, on features that are kept

Needed only to rebuild the model; the `align` extra installs what it takes.
"""
