"""The table of methods: what a person can choose, with names, help and defaults.

    FEW_SHOT_METHODS["atlas+tip"].head, FEW_SHOT_METHODS["auto"].lr_scale
    find_method("few-shot", "atals")        # ConfigError: … Did you mean 'atlas'?

Library, command line, page and studies take their methods from here. A method is a row; a label-free
objective needs none, because each row of `objectives.registry` that wants no labels becomes a method of its
own name.
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


@dataclass(frozen=True)
class Method:
    """A way to adapt: how coefficients are found, and which head goes on top."""

    name: str
    help: str
    title: str = ""  # what the page calls it; empty where the page does not offer it
    head: str = "none"  # a row of `heads.registry`
    objective: str | None = None  # a row of `objectives.registry` that moves λ; None: no λ is learned
    slopes: bool = False  # λ starts from the slopes of the margins at zero instead of from 0
    layout: Layout = BLOCKWISE  # which coefficients are free
    block_kinds: tuple[str, ...] = BLOCK_KINDS  # blocks whose λ moves
    share: float = 0.5  # of the tower's weights, from its end, that may move
    lr_scale: float = 1.0  # times the learning rate of the config
    fresh_views: bool = False  # new random crops at each step instead of a few that are kept
    fitted_start: bool = (
        False  # joint learning starts from the fitted head instead of from its initial values
    )
    settings: Mapping[str, float] = field(default_factory=dict)  # in place of the config's defaults
    keep_fraction: float = 1.0  # of the learned λ that is kept: 0.5 is the midpoint of WiSE-FT (CVPR 2022)

    @property
    def uses_task_vectors(self) -> bool:
        """Whether coefficients can differ from 0."""
        return self.slopes or self.objective is not None


def find_method(task: str, name: str) -> Method:
    """The method called `name` for "few-shot" or "test-time", or an error that offers the nearest name."""
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
    """All methods for "few-shot" or "test-time", in the order in which people are offered them."""
    return tuple(METHODS[task].values())


def _table(rows: Iterable[Method]) -> Mapping[str, Method]:
    return MappingProxyType({row.name: row for row in rows})


# ---- from a few labelled images

_JOINT = Method(
    "atlas+text-probe",
    "λ of 20 random parts of each block, half of it kept, then a linear head that starts at the class names",
    title="Task vectors and a head",
    head="text-probe",
    objective="supervised",
    layout=Layout(partitions=20),
    share=0.85,
    lr_scale=4.0,
    keep_fraction=0.5,
)
_BLOCKWISE = Method("atlas", "one λ per vector and block", title="Task vectors alone", objective="supervised")

_PAPER = Method(
    "paper",
    "aTLAS as published: one λ per vector and block of the whole tower, 10 epochs, new crops at each step",
    objective="supervised",
    share=1.0,
    fresh_views=True,
    settings=MappingProxyType({"lr": 0.1, "weight_decay": 0.1, "batch": 128, "epochs": 10}),
)

FEW_SHOT_METHODS = _table(
    [
        replace(
            _JOINT,
            name=AUTO,
            title="Automatic",
            help=f"{_JOINT.name}, text-probe or zero-shot: whichever held-out images favour",
        ),
        Method(ZERO_SHOT, "the class names alone"),
        _JOINT,
        _BLOCKWISE,
        Method("text-probe", "a linear head that starts at the class names", "A head alone", "text-probe"),
        replace(_BLOCKWISE, name="atlas-half", help="atlas, half of λ kept", title="", keep_fraction=0.5),
        replace(_BLOCKWISE, name="atlas-iso", help="one λ per vector", title="", layout=Layout("isotropic")),
        replace(_BLOCKWISE, name="atlas+tip", help="λ and Tip-Adapter together", title="", head="tip"),
        replace(_BLOCKWISE, name="atlas+lpp", help="λ and LP++ together", title="", head="lpp"),
        _PAPER,
        replace(
            _PAPER,
            name="paper+tip",
            help="paper and Tip-Adapter learned together, from the fitted cache",
            head="tip",
            fitted_start=True,
        ),
        replace(
            _PAPER,
            name="paper+lpp",
            help="paper and LP++ learned together, from the fitted head",
            head="lpp",
            fitted_start=True,
        ),
        Method("slope", "λ from the slopes of the margins at zero, without steps", slopes=True),
        replace(
            _BLOCKWISE,
            name="slope+atlas",
            help="atlas, from slope on",
            title="",
            slopes=True,
            lr_scale=0.4,
        ),
        Method("tip", "Tip-Adapter: labelled features vote beside the class names", head="tip"),
        Method("tip-f", "Tip-Adapter-F: tip with trained keys", head="tip-f"),
        Method("lpp", "LP++: a linear head blended with the class names", head="lpp"),
        Method("linear-probe", "logistic regression on the features", head="linear-probe"),
    ]
)

# ---- from images without labels

ALL_CLASSES, SOME_CLASSES = "entropy+balanced", "entropy+proportioned"
"""What `auto` does where all classes seem to be among the images, and where some seem to be missing. Both
move the same blocks in the same way, so that the choice between them can be made after the images were
read."""

_NORM_BLOCKS = Method(
    ALL_CLASSES,
    "λ of the norm layers by confident answers, and a head that gives each class as many images",
    title="Task vectors in the norms, and a head with sure answers of every name",
    objective="entropy",
    head="balanced",
    block_kinds=("norm",),
    layout=Layout(partitions=20),
    lr_scale=50.0,
)
_OBJECTIVE_TITLES = {
    "ufm": "Task vectors, by trusted answers and views that agree",
    "entropy": "Task vectors, by answers that are sure",
    "sar": "Task vectors, by sure answers that stay so nearby",
    "simclr": "Task vectors, by views of a photo that stay together",
}
_LABEL_FREE = [spec for spec in OBJECTIVES.values() if not spec.needs_labels and not spec.needs_proportions]

UNLABELLED_METHODS = _table(
    [
        replace(
            _NORM_BLOCKS,
            name=AUTO,
            title="Automatic",
            help=f"{ALL_CLASSES}, {SOME_CLASSES} or zero-shot, by checks that need no labels",
        ),
        Method(ZERO_SHOT, "the class names alone"),
        _NORM_BLOCKS,
        replace(
            _NORM_BLOCKS,
            name=SOME_CLASSES,
            title="Task vectors in the norms, and a head, as many of a name as are found",
            help="the same, each class as often as its centre is found among the images",
            objective="in-proportion",
            head="proportioned",
        ),
        Method(
            "balanced",
            "a head that gives each class as many images",
            "A head with sure answers of every name",
            "balanced",
        ),
        Method(
            "proportioned",
            "a head that gives each class as many images as its centre attracts",
            "A head with sure answers, as many of a name as are found",
            "proportioned",
        ),
        Method(
            "anchored",
            "class centres among the images, anchored to the class names",
            "A head of class centres",
            "anchored",
        ),
        Method(
            "paper",
            "UFM as published: one λ per vector and block of the whole tower, 10 epochs, new strong views",
            objective="ufm",
            share=1.0,
            fresh_views=True,
            settings=MappingProxyType(
                {"lr": 1e-3, "weight_decay": 0.1, "batch": 128, "epochs": 10, "share": 1.0}
            ),
        ),
        *(
            Method(spec.name, spec.help, _OBJECTIVE_TITLES.get(spec.name, spec.help), objective=spec.name)
            for spec in _LABEL_FREE
        ),
    ]
)

NORM_BASELINES = tuple(f"ln-{spec.name}" for spec in _LABEL_FREE)
"""The same objectives over the scales and shifts of norm layers (as Tent, ICLR 2021): answers, no recipe."""

METHODS = MappingProxyType({"few-shot": FEW_SHOT_METHODS, "test-time": UNLABELLED_METHODS})
