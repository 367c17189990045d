"""Adaptation: few-shot, label-free and task arithmetic are one loop with different objectives and batches.

    methods             the table of methods; start here to see what exists
    context             the input of a run: a model, its bank, images and class embeddings
    few_shot            labelled images → result
    unlabelled, stream  images without labels → result
    arithmetic/         forget classes, or one model for several tasks
    optimise, adamw     the optimiser loop and its update
    trainable           the tensors that the loop trains, and the model at their values
    trainable_part      the part of the tower that moves, over a frozen prefix
    samplers            a batch for each step of the loop
    micro_batches       large batches in little memory
    slopes              a first λ without training
    guards              deadline, Stop and divergence
    collapse            checks that need no labels
    verdict             whether adapting helped, by held-out images
    results, progress   recipes, results and steps

This package knows nothing of files, sessions or pages.
"""
