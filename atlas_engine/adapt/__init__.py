"""Adaptation: few-shot, label-free and task arithmetic are one loop with different objectives and batches.

    context        what a run works with: a model, a bank made for it, images and class embeddings
    methods        the table of methods, from which library, command line, page and studies take their names
    few_shot       labelled images → result          unlabelled, stream   images without labels → result
    arithmetic/    forget classes, or one model for several tasks
    trainable      what the loop tunes               trainable_part       the part of the tower that moves
    optimise       the loop                          samplers             a batch for each step
    guards         deadline, Stop, divergence        collapse             checks that need no labels
    verdict        was it worth it                   results, progress    recipes, results and steps

This package knows nothing of files, sessions or pages.
"""
