"""How the bundled model was made: pre-trained towers from packages, aligned in a sentence encoder's space.

    towers    → the two ImageNet towers, out of their packages
    words     → the thousand ImageNet concepts, and names, as the text tower embeds them
    batches   → images with labels or names, their crops and styles
    student   → tower and head, as they start and while they learn
    train     → the training steps
    finish    → from a trained student to a whole CLIP, its file and its manifest
    compare   → the two towers side by side, before any training
    baseline  → the training-free baseline that must be beaten

Needed only to rebuild the model (`atlas model align|compare`); the `align` extra installs what it takes.
"""
