"""A pickle read as plain data. Looks nothing up, calls nothing of the file's; knows nothing of torch.

Python's own unpickler obeys the file: it imports the names in it and calls them. This one reads the same
opcodes and keeps a name as text. Out come dicts, lists, tuples, numbers and text, and two records:

    Named("os.system")                 a name that the file mentions
    Thing("src.Encoder", {...})        an object that it describes: the name of its class, and its state

Where the file asks for a call, the caller's table of builders answers if it knows the name, a few names that
weights files are known to carry (`INERT`) leave an empty `Thing`, and anything else is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

__all__ = ["ForbiddenCallError", "Named", "Thing", "read_pickle"]

MOST_OPCODES = 2_000_000
"""A pickled ViT-L/14 has some 30,000."""

INERT = frozenset(
    {
        "torchvision.transforms.functional.InterpolationMode",
        "torch.device",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "_codecs.encode",
    }
)
"""What a pickled encoder carries beside its weights: preprocessing, a device, a score. None of it is kept."""

Builder = Callable[..., object]


class ForbiddenCallError(Exception):
    """The file asks to call a name that is on no list; the name is the message."""


@dataclass(frozen=True)
class Named:
    """A name that a pickle mentions, as text: `torch.FloatStorage`."""

    name: str


@dataclass(eq=False)
class Thing:
    """An object that a pickle describes, as data: the name of its class, and its attributes."""

    name: str
    state: dict[object, object] = field(default_factory=dict)


def read_pickle(
    file: IO[bytes], *, builders: Mapping[str, Builder], persistent: Callable[[object], object]
) -> object:
    """The data of the one pickle that starts where `file` stands; `file` then stands behind it.

    `builders` maps names to functions of ours; `persistent` answers the pickle's references to the outside.
    Whatever is wrong with the file ends as a ForbiddenCallError, or as one of Python's errors for bad values.
    """
    machine = _Machine(builders, persistent)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if count > MOST_OPCODES:
            raise ValueError("it has too many instructions")
        machine.step(opcode.name, argument)
    return machine.stack.pop()


class _Machine:
    """The stack, the marks on it and the memo of a pickle that is being read."""

    def __init__(self, builders: Mapping[str, Builder], persistent: Callable[[object], object]) -> None:
        self.builders = builders
        self.persistent = persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def step(self, opcode: str, argument: Any) -> None:  # noqa: ANN401 - whatever the opcode carries
        if opcode in _VALUES:
            self.stack.append(argument)
        elif opcode in _FRESH:
            self.stack.append(_FRESH[opcode]())
        elif opcode in _STEPS:
            _STEPS[opcode](self, argument)
        elif opcode not in _IGNORED:
            raise ValueError(f"it holds the instruction {opcode}, which weights do not need")

    def since_mark(self) -> list[Any]:
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def drop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def called(self, target: object, arguments: object) -> object:
        if not isinstance(target, Named) or not isinstance(arguments, tuple):
            raise ValueError("it calls something that has no name")
        if target.name in self.builders:
            return self.builders[target.name](*arguments)
        if target.name in INERT:
            return Thing(target.name)
        raise ForbiddenCallError(target.name)

    def made(self, kind: object, arguments: object) -> Thing:
        """An object without its state: nothing runs, so any class will do, as long as it takes no values."""
        if not isinstance(kind, Named) or arguments:
            raise ForbiddenCallError(kind.name if isinstance(kind, Named) else type(kind).__name__)
        return Thing(kind.name)

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Thing):
            for part in state if isinstance(state, tuple) else (state,):  # (attributes, slots)
                if isinstance(part, dict):
                    target.state.update(part)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        held = target.state if isinstance(target, Thing) else target
        if not isinstance(held, dict):
            raise ValueError("it sets items of something that has none")
        held.update(_plain_pairs(items))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Thing):
            raise ValueError("it appends to something that is no list")

    def from_class(self, items: list[Any]) -> None:
        self.stack.append(self.made(items[0], tuple(items[1:])))


def _plain_pairs(items: list[Any]) -> dict[object, object]:
    """Keys and values in turn as a dict; a key that is no text or number names no weights and is left out.

    This also keeps us from hashing what the file made: a tuple nested a million deep ends the process.
    """
    pairs = zip(items[::2], items[1::2], strict=True)
    return {key: value for key, value in pairs if isinstance(key, (str, int, float)) or key is None}


_VALUES = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
)

_FRESH: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,  # a set as a list: no weights are kept in one
}


_IGNORED = frozenset({"PROTO", "FRAME", "STOP"})


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    def step(m: _Machine, _: object) -> None:
        m.stack[-count:] = [tuple(m.stack[-count:])]

    return step


def _remember(m: _Machine, at: int | None) -> None:
    m.memo[len(m.memo) if at is None else at] = m.stack[-1]


def _call(m: _Machine, _: object) -> None:
    arguments = m.stack.pop()
    m.stack.append(m.called(m.stack.pop(), arguments))


def _make(m: _Machine, keywords: bool) -> None:
    extra = m.stack.pop() if keywords else None
    arguments = m.stack.pop()
    m.stack.append(m.made(m.stack.pop(), arguments or extra))


def _name(m: _Machine, text: str | None) -> None:
    if text is None:
        name, module = m.stack.pop(), m.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("it mentions a name that is no text")
        text = f"{module} {name}"
    m.stack.append(Named(text.replace(" ", ".")))


def _inst(m: _Machine, text: str) -> None:
    arguments = tuple(m.since_mark())
    _name(m, text)
    m.stack.append(m.made(m.stack.pop(), arguments))


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.drop(),
    "POP_MARK": lambda m, _: m.since_mark().clear(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "PUT": _remember,
    "BINPUT": _remember,
    "LONG_BINPUT": _remember,
    "MEMOIZE": _remember,
    "GET": lambda m, at: m.stack.append(m.memo[at]),
    "BINGET": lambda m, at: m.stack.append(m.memo[at]),
    "LONG_BINGET": lambda m, at: m.stack.append(m.memo[at]),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "FROZENSET": lambda m, _: m.stack.append(m.since_mark()),
    "DICT": lambda m, _: m.stack.append(_plain_pairs(m.since_mark())),
    "APPEND": lambda m, _: m.extend([m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "ADDITEMS": lambda m, _: m.extend(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "GLOBAL": _name,
    "STACK_GLOBAL": _name,
    "REDUCE": _call,
    "NEWOBJ": lambda m, _: _make(m, keywords=False),
    "NEWOBJ_EX": lambda m, _: _make(m, keywords=True),
    "OBJ": lambda m, _: m.from_class(m.since_mark()),
    "INST": _inst,
    "BUILD": lambda m, _: m.build(),
    "BINPERSID": lambda m, _: m.stack.append(m.persistent(m.stack.pop())),
}
