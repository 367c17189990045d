"""What studies learn from and measure on, drawn from folders of classes by a seed.

draw           → classes and images of a folder, as the tower's pixels (N 3 S S)
few_shot       → a few shots to learn from and other images to measure on
unlabelled     → unlabelled images, labels kept apart for the score
training_sets  → a training set of which shares are taken
unseen         → images that a task vector was not trained on
"""
