"""The table of commands: the one place that lists them. Knows their names, not their insides."""

from __future__ import annotations

from atlas_engine.cli.command import Group, Row

__all__ = ["EXAMPLES", "GROUPS", "ROWS"]

EXAMPLES = ("atlas doctor", "atlas cache size --json")  # of `atlas --help` itself

GROUPS = {
    "adapt": Group(
        "Adapt a model to your classes.",
        ("atlas adapt few-shot my_photos -o mine.atlas.safetensors", "atlas adapt few-shot --help"),
    ),
    "eval": Group(
        "Measure accuracy on folders of labelled images.",
        ("atlas eval zero-shot photos/pets", "atlas eval zero-shot photos/pets --json zero-shot.json"),
    ),
    "bank": Group(
        "Banks of task vectors: what an adaptation mixes.",
        ("atlas bank list", "atlas bank show bank.safetensors"),
    ),
    "model": Group("The model that ships.", ("atlas model align --help", "atlas model compare --help")),
    "cache": Group("The cache of image features and class names.", ("atlas cache size", "atlas cache clear")),
}

ROWS = (
    Row("adapt", "few-shot", "Learn from a few labelled images.", "atlas_engine.cli.adapt:FEW_SHOT"),
    Row(
        "adapt",
        "test-time",
        "Learn from images without labels.",
        "atlas_engine.cli.adapt_test_time:TEST_TIME",
    ),
    Row("adapt", "negate", "Forget a set of classes.", "atlas_engine.cli.adapt_arithmetic:NEGATE"),
    Row("adapt", "add", "One model for several tasks.", "atlas_engine.cli.adapt_arithmetic:ADD"),
    Row("bank", "list", "List banks: here, and public ones.", "atlas_engine.cli.bank:LIST"),
    Row("bank", "show", "Print what a bank holds.", "atlas_engine.cli.bank:SHOW"),
    Row("bank", "verify", "Check a bank file, and that it fits a model.", "atlas_engine.cli.bank:VERIFY"),
    Row("bank", "compress", "Store a bank in fewer bytes.", "atlas_engine.cli.bank:COMPRESS"),
    Row("bank", "train", "Make a task vector from a folder of classes.", "atlas_engine.cli.bank_train:TRAIN"),
    Row("bank", "import", "Make a bank from checkpoints.", "atlas_engine.cli.bank_import:IMPORT"),
    Row("bank", "sets", "Make image sets from public packages.", "studies.cli.sets:SETS"),
    Row("bench", "", "Time what the project promises, and check it.", "studies.cli.bench:BENCH"),
    Row("cache", "path", "Print the folder of the cache.", "atlas_engine.cli.cache:PATH"),
    Row("cache", "size", "Print how much room the cache takes.", "atlas_engine.cli.cache:SIZE"),
    Row("cache", "clear", "Empty the cache.", "atlas_engine.cli.cache:CLEAR"),
    Row(
        "doctor",
        "",
        "Look over this installation, and say what is missing.",
        "atlas_engine.cli.doctor:DOCTOR",
    ),
    Row(
        "eval",
        "zero-shot",
        "Accuracy without adaptation, on labelled folders.",
        "studies.cli.zero_shot:ZERO_SHOT",
    ),
    Row("eval", "few-shot", "Compare few-shot methods on folders.", "studies.cli.few_shot:FEW_SHOT"),
    Row(
        "eval",
        "test-time",
        "Compare methods that learn without labels.",
        "studies.cli.unlabelled:TEST_TIME",
    ),
    Row("eval", "negate", "Compare ways to forget.", "studies.cli.arithmetic:NEGATE"),
    Row("eval", "add", "Compare ways to add tasks.", "studies.cli.arithmetic:ADD"),
    Row(
        "eval",
        "transfer",
        "Learn on one domain, ask about others.",
        "studies.cli.transfer:TRANSFER",
    ),
    Row("eval", "peft", "Compare coefficients in K parts with LoRA.", "studies.cli.peft:PEFT"),
    Row(
        "eval",
        "disentangle",
        "How vectors get along, and how few numbers do.",
        "studies.cli.peft:DISENTANGLE",
    ),
    Row("eval", "donors", "What each vector of a bank is good for.", "studies.cli.bank:DONORS"),
    Row("eval", "bits", "What a bank loses in fewer bits.", "studies.cli.bank:BITS"),
    Row("eval", "selection", "Which vectors to use, if only some.", "studies.cli.bank:SELECTION"),
    Row(
        "model",
        "align",
        "Rebuild the bundled model from packages and images.",
        "studies.cli.model:ALIGN",
    ),
    Row("model", "compare", "Compare image towers to build on.", "studies.cli.model:COMPARE"),
    Row("predict", "", "Say which of your classes each image shows.", "atlas_engine.cli.predict:PREDICT"),
    Row("show", "", "Print a recipe.", "atlas_engine.cli.show:SHOW"),
)
