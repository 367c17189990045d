"""How the bundled model was made: pre-trained towers from packages, joined in a sentence encoder's space.

    towers      → the two ImageNet towers, out of their packages
    vocabulary  → the thousand ImageNet concepts: names, synonyms, definitions
    words       → concepts and names, as the text tower reads them
    lesson      → images, their labels, and named pictures
    batches     → crops and styles
    student     → tower and head, as they start and while they learn
    train       → the steps
    finish      → from a trained student to a whole CLIP
    export      → the file that ships, and its manifest
    compare     → the two towers side by side, before any training
    baseline    → what must be beaten

Needed only to rebuild the model; the `align` extra installs what it takes.
"""
