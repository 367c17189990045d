"""The table of methods: what a user can choose, with names, help and defaults.

    FEW_SHOT_METHODS["atlas+tip"].head, FEW_SHOT_METHODS["auto"].lr_scale
    find_method("few-shot", "atals")        # ConfigError: … Did you mean 'atlas'?

The library, the command line, the page and the studies take their methods from here. To add a method, add a
row. A label-free objective needs none: each row of `objectives.registry` that needs no labels becomes a
method of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from atlas_engine.bank.blocks import BLOCK_KINDS
from atlas_engine.compose.coefficients import Layout
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.objectives.registry import OBJECTIVES

__all__ = [
    "ALL_CLASSES",
    "AUTO",
    "FEW_SHOT_METHODS",
    "METHODS",
    "NORM_BASELINES",
    "SOME_CLASSES",
    "UNLABELLED_METHODS",
    "ZERO_SHOT",
    "Method",
    "find_method",
    "list_methods",
]

AUTO, ZERO_SHOT = "auto", "zero-shot"
BLOCKWISE = Layout()  # one coefficient per vector and block
TWENTY_PARTS = Layout(partitions=20, split_by="entries")  # "rows" is faster to compose; other answers
JOINT_FRACTION = 0.75
"""Of the way of λ and a head that are learned together. Chosen on data sets of the bank, where the whole way
fell below LP++ alone at 16 images a class."""
BATCH_NORM_LR_SCALE, LAYER_NORM_LR_SCALE = 50.0, 50.0
"""Factors on the learning rate where only λ of norm layers is trained without labels, by the tower's norms.
The first was chosen on the bundled tower. The second has not been measured on a CLIP ViT."""


@dataclass(frozen=True)
class Method:
    """One row: how the coefficients λ are found, and which head is put on top."""

    name: str
    """Its name in the library and on the command line."""
    help: str
    """What it does, in one line."""
    title: str = ""
    """Its name on the page; empty where the page does not offer it."""
    head: str = "none"
    """A row of `heads.registry`."""
    objective: str | None = None
    """The row of `objectives.registry` that λ is trained on; None trains no λ."""
    slopes: bool = False
    """Start λ from the slopes of the margins at λ = 0 (`adapt.slopes`) instead of from 0."""
    layout: Layout = BLOCKWISE
    """Which coefficients are free."""
    block_kinds: tuple[str, ...] = BLOCK_KINDS
    """The kinds of block whose λ is trained; the others stay at the base."""
    share: float = 0.5
    """Share of the tower's weights, from its end, that may move."""
    lr_scale: float = 1.0
    """Factor on the learning rate of the config."""
    layer_norm_lr_scale: float | None = None
    """The same for an image tower with LayerNorms; None is `lr_scale`."""
    fresh_views: bool = False
    """Draw new random views at each step instead of making a few once."""
    fitted_start: bool = False
    """Start joint training from the fitted head instead of from its initial values."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """Its own values of settings that a config leaves open (`adapt.settings`)."""
    keep_fraction: float = 1.0
    """Fraction of the way that is kept of what was learned, λ and a joint head; 0.5 is the midpoint of
    WiSE-FT (CVPR 2022)."""

    @property
    def uses_task_vectors(self) -> bool:
        """Whether coefficients can differ from 0."""
        return self.slopes or self.objective is not None


def _by_name(rows: Iterable[Method]) -> Mapping[str, Method]:
    return MappingProxyType({row.name: row for row in rows})


# ---- from a few labelled images

_ATLAS = Method(name="atlas", help="one λ per vector and block", objective="supervised")

_ATLAS_AND_PROBE = Method(
    name="atlas+text-probe",
    help="λ of 20 random parts of each block, half of it kept, then a linear head that starts at the class "
    "names",
    title="Task vectors and a head",
    head="text-probe",
    objective="supervised",
    layout=TWENTY_PARTS,
    share=0.85,
    lr_scale=4.0,
    keep_fraction=0.5,
)
_PAPER = Method(
    name="paper",
    help="aTLAS as published: one λ per vector and block of the whole tower, 10 epochs, new crops at each "
    "step",
    title="aTLAS as published (slow)",
    objective="supervised",
    share=1.0,
    fresh_views=True,
    settings=MappingProxyType(
        # in micro-batches the gradient is the same, memory is less, and a stop takes effect within a step
        {"lr": 0.1, "weight_decay": 0.1, "batch": 128, "micro_batch": 32, "epochs": 10}
    ),
)

FEW_SHOT_METHODS = _by_name(
    [
        replace(
            _ATLAS_AND_PROBE,
            name=AUTO,
            title="Automatic",
            help=f"{_ATLAS_AND_PROBE.name}, text-probe or zero-shot: whichever held-out images favour",
        ),
        Method(name=ZERO_SHOT, help="the class names alone"),
        _ATLAS_AND_PROBE,
        replace(_ATLAS, title="Task vectors alone"),
        Method(
            name="text-probe",
            help="a linear head that starts at the class names",
            title="A head alone",
            head="text-probe",
        ),
        replace(
            _ATLAS_AND_PROBE,
            name="atlas-rows+text-probe",
            help=f"{_ATLAS_AND_PROBE.name} with parts of whole output rows, which are faster to compose",
            title="",
            layout=replace(TWENTY_PARTS, split_by="rows"),
        ),
        replace(_ATLAS, name="atlas-half", help="atlas, half of λ kept", keep_fraction=0.5),
        replace(_ATLAS, name="atlas-iso", help="one λ per vector", layout=Layout("isotropic")),
        replace(
            _ATLAS,
            name="atlas+tip",
            help="λ and Tip-Adapter learned together, from the fitted cache",
            head="tip",
            fitted_start=True,
            keep_fraction=JOINT_FRACTION,
        ),
        replace(
            _ATLAS,
            name="atlas+lpp",
            help="λ and LP++ learned together, from the fitted head",
            head="lpp",
            fitted_start=True,
            keep_fraction=JOINT_FRACTION,
        ),
        _PAPER,
        replace(
            _PAPER,
            name="paper+tip",
            help="paper and Tip-Adapter learned together, from the fitted cache",
            title="aTLAS as published, with Tip-Adapter (slow)",
            head="tip",
            fitted_start=True,
        ),
        replace(
            _PAPER,
            name="paper+lpp",
            help="paper and LP++ learned together, from the fitted head",
            title="aTLAS as published, with LP++ (slow)",
            head="lpp",
            fitted_start=True,
        ),
        Method(name="slope", help="λ from the slopes of the margins at λ = 0, without training", slopes=True),
        replace(_ATLAS, name="slope+atlas", help="atlas that starts from slope", slopes=True, lr_scale=0.4),
        Method(name="tip", help="Tip-Adapter: labelled features vote with the class names", head="tip"),
        Method(name="tip-f", help="Tip-Adapter-F: tip with trained keys", head="tip-f"),
        Method(name="lpp", help="LP++: a linear head blended with the class names", head="lpp"),
        Method(name="linear-probe", help="logistic regression on the features", head="linear-probe"),
    ]
)

# ---- from images without labels

ALL_CLASSES, SOME_CLASSES = "entropy+balanced", "entropy+proportioned"
"""What `auto` chooses where all classes seem to be among the images, and where some seem to be missing. Both
train the same blocks in the same way, so `auto` can choose between them after it has seen the images."""

_BALANCED = Method(
    name=ALL_CLASSES,
    help="λ of the norm layers by confident answers, and a head that gives each class equally many images",
    title="Task vectors in the norms, and a head with sure answers of every name",
    head="balanced",
    objective="entropy",
    layout=TWENTY_PARTS,
    block_kinds=("norm",),
    lr_scale=BATCH_NORM_LR_SCALE,
    layer_norm_lr_scale=LAYER_NORM_LR_SCALE,
)
_OBJECTIVE_TITLES = {
    "ufm": "Task vectors, by trusted answers and views that agree",
    "entropy": "Task vectors, by answers that are sure",
    "sar": "Task vectors, by sure answers that stay so nearby",
    "simclr": "Task vectors, by views of a photo that stay together",
}
_LABEL_FREE = [spec for spec in OBJECTIVES.values() if not spec.needs_labels and not spec.needs_proportions]

UNLABELLED_METHODS = _by_name(
    [
        replace(
            _BALANCED,
            name=AUTO,
            title="Automatic",
            help=f"{ALL_CLASSES}, {SOME_CLASSES} or zero-shot, by checks that need no labels",
        ),
        Method(name=ZERO_SHOT, help="the class names alone"),
        _BALANCED,
        replace(
            _BALANCED,
            name=SOME_CLASSES,
            help="the same, with each class as frequent as estimated from the images",
            title="Task vectors in the norms, and a head, as many of a name as are found",
            head="proportioned",
            objective="in-proportion",
        ),
        Method(
            name="balanced",
            help="a head that gives each class equally many images",
            title="A head with sure answers of every name",
            head="balanced",
        ),
        Method(
            name="proportioned",
            help="a head that gives each class as many images as estimated",
            title="A head with sure answers, as many of a name as are found",
            head="proportioned",
        ),
        Method(
            name="anchored",
            help="class centres among the images, anchored to the class names",
            title="A head of class centres",
            head="anchored",
        ),
        Method(
            name="paper",
            help="UFM as published: one λ per vector and block of the whole tower, 10 epochs, new strong "
            "views",
            title="aTLAS with UFM as published (slow)",
            objective="ufm",
            share=1.0,
            fresh_views=True,
            settings=MappingProxyType({"lr": 1e-3, "weight_decay": 0.1, "batch": 128, "epochs": 10}),
        ),
        *(
            Method(
                name=spec.name,
                help=spec.help,
                title=_OBJECTIVE_TITLES.get(spec.name, spec.help),
                objective=spec.name,
            )
            for spec in _LABEL_FREE
        ),
    ]
)

NORM_BASELINES = tuple(f"ln-{spec.name}" for spec in _LABEL_FREE)
"""The same objectives over the scales and shifts of the norm layers (Tent, ICLR 2021). They give answers for
the images they adapted to, and no recipe."""

METHODS = MappingProxyType({"few-shot": FEW_SHOT_METHODS, "test-time": UNLABELLED_METHODS})


# ---- look-up


def find_method(task: str, name: str) -> Method:
    """The method called `name` for "few-shot" or "test-time".

    An unknown name is a `ConfigError` that suggests the nearest known name.
    """
    methods = METHODS[task]
    if task == "test-time" and name in NORM_BASELINES:
        raise ConfigError(
            f"{name} tunes norm layers, which no recipe of coefficients can hold. Call test_time_norms for "
            f"its answers, or choose '{name.removeprefix('ln-')}'."
        )
    if name not in methods:
        kind = "method" if task == "few-shot" else "objective"
        raise ConfigError(unknown_name(kind, name, methods))
    return methods[name]


def list_methods(task: str) -> tuple[Method, ...]:
    """All methods for "few-shot" or "test-time", in the order in which users are offered them."""
    return tuple(METHODS[task].values())
