"""Measurements of the engine: the laboratory of the product, which works without it.

grid             → the runner of all studies: measurements made once, kept in a file
problems/        → few-shot problems, problems, training sets, drawn from folders by a seed
methods          → few-shot baselines and methods without labels
tables           → what the reports share
few_shot, unlabelled, transfer, zero_shot, arithmetic/, banks/, peft, disentangle, dimension → the studies
speed/           → benchmarks (`atlas bench`)
load_test/       → many visitors on the app at once
bundled_model/   → how the bundled model was made
datasets/        → image sets out of public packages
cli/             → the commands `atlas eval | bench | model | bank sets`
"""
