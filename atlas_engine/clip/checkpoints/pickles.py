"""A pickle read as plain data: nothing in it is imported or called.

Python's own unpickler imports the names in a file and calls them. This one interprets the same opcodes and
keeps names as text. The result consists of dicts, lists, tuples, numbers, text and two kinds of records:

    GlobalName("os.system")                 a name that the file mentions
    ObjectRecord("src.Encoder", {...})      an object that it describes: the name of its class, and its state

Where the file asks for a call, `builders` answers if it knows the name. A few names that weights files are
known to carry (`IGNORED_CALLS`) give an empty record. Any other call is refused.

`torch.load(weights_only=True)` with allow-listed stubs does not replace this (tried with torch 2.13): a
deeply nested tuple as a dict key crashes its process, it refuses pickled modules in the format before torch
1.6, and it checks no CRC.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

__all__ = ["ForbiddenCallError", "GlobalName", "ObjectRecord", "read_pickle"]

MAX_OPCODES = 2_000_000  # a pickled ViT-L/14 has some 30,000

IGNORED_CALLS = frozenset(
    {
        "torchvision.transforms.functional.InterpolationMode",
        "torch.device",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "_codecs.encode",
    }
)
"""Calls in a pickled encoder that make no weights: its preprocessing, a device, a score."""

Builder = Callable[..., object]


class ForbiddenCallError(Exception):
    """The file asks to call a name that is on no list; the name is the message."""


@dataclass(frozen=True)
class GlobalName:
    """A name that a pickle mentions, as text: `torch.FloatStorage`."""

    name: str


@dataclass(eq=False)
class ObjectRecord:
    """An object that a pickle describes: the name of its class, and its attributes."""

    name: str
    state: dict[object, object] = field(default_factory=dict)


def read_pickle(
    file: IO[bytes], *, builders: Mapping[str, Builder], resolve: Callable[[object], object]
) -> object:
    """The data of the pickle that starts at the file's position; the position is behind it afterwards.

    `builders` maps names to functions of ours that answer calls, and `resolve` answers persistent ids, the
    pickle's references to what lies outside it. A bad file raises a ForbiddenCallError or one of Python's
    errors for bad values.
    """
    interpreter = _Interpreter(builders, resolve)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if count > MAX_OPCODES:
            raise ValueError("it has too many instructions")
        interpreter.execute(opcode.name, argument)
    return interpreter.stack.pop()


class _Interpreter:
    """The stack, its marks and the memo of a pickle that is being read."""

    def __init__(self, builders: Mapping[str, Builder], resolve: Callable[[object], object]) -> None:
        self.builders = builders
        self.resolve = resolve
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def execute(self, opcode: str, argument: Any) -> None:  # noqa: ANN401 - whatever the opcode carries
        if opcode in _VALUES:
            self.stack.append(argument)
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode]())
        elif opcode in _ACTIONS:
            _ACTIONS[opcode](self, argument)
        elif opcode not in _IGNORED_OPCODES:
            raise ValueError(f"it holds the instruction {opcode}, which weights do not need")

    def pop_to_mark(self) -> list[Any]:
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def pop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def call(self, target: object, arguments: object) -> object:
        if not isinstance(target, GlobalName) or not isinstance(arguments, tuple):
            raise ValueError("it calls something that has no name")
        if target.name in self.builders:
            return self.builders[target.name](*arguments)
        if target.name in IGNORED_CALLS:
            return ObjectRecord(target.name)
        raise ForbiddenCallError(target.name)

    def new_object(self, kind: object, arguments: object) -> ObjectRecord:
        """An object without its state. Nothing runs, so any class is taken, but no arguments are."""
        if not isinstance(kind, GlobalName) or arguments:
            raise ForbiddenCallError(kind.name if isinstance(kind, GlobalName) else type(kind).__name__)
        return ObjectRecord(kind.name)

    def set_state(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, ObjectRecord):
            for part in state if isinstance(state, tuple) else (state,):  # (attributes, slots)
                if isinstance(part, dict):
                    target.state.update(part)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        mapping = target.state if isinstance(target, ObjectRecord) else target
        if not isinstance(mapping, dict):
            raise ValueError("it sets items of something that has none")
        mapping.update(_to_dict(items))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, ObjectRecord):
            raise ValueError("it appends to something that is no list")


def _to_dict(items: list[Any]) -> dict[object, object]:
    """Alternating keys and values as a dict, with the keys that are text, numbers or None.

    Other keys name no weights, and the hash of a tuple nested a million deep would crash the process.
    """
    pairs = zip(items[::2], items[1::2], strict=True)
    return {key: value for key, value in pairs if isinstance(key, (str, int, float)) or key is None}


# ---- The opcodes. Each pushes its argument, pushes a constant, acts on the stack or is ignored.

_VALUES = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
)

_CONSTANTS: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,  # a set as a list: it holds no weights, and its items need no hash
}

_IGNORED_OPCODES = frozenset({"PROTO", "FRAME", "STOP"})


def _tuple_of(count: int) -> Callable[[_Interpreter, Any], None]:
    def action(i: _Interpreter, _: object) -> None:
        i.stack[-count:] = [tuple(i.stack[-count:])]

    return action


def _memoize(i: _Interpreter, key: int | None) -> None:
    i.memo[len(i.memo) if key is None else key] = i.stack[-1]


def _reduce(i: _Interpreter, _: object) -> None:
    arguments = i.stack.pop()
    i.stack.append(i.call(i.stack.pop(), arguments))


def _new_object(i: _Interpreter, *, keywords: bool) -> None:
    extra = i.stack.pop() if keywords else None
    arguments = i.stack.pop()
    i.stack.append(i.new_object(i.stack.pop(), arguments or extra))


def _global(i: _Interpreter, text: str | None) -> None:
    if text is None:  # module and name are on the stack
        name, module = i.stack.pop(), i.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("it mentions a name that is no text")
        text = f"{module} {name}"
    i.stack.append(GlobalName(text.replace(" ", ".")))


def _inst(i: _Interpreter, text: str) -> None:
    arguments = tuple(i.pop_to_mark())
    i.stack.append(i.new_object(GlobalName(text.replace(" ", ".")), arguments))


def _obj(i: _Interpreter, _: object) -> None:
    kind, *arguments = i.pop_to_mark()
    i.stack.append(i.new_object(kind, arguments))


_ACTIONS: dict[str, Callable[[_Interpreter, Any], None]] = {
    "MARK": lambda i, _: i.marks.append(len(i.stack)),
    "POP": lambda i, _: i.pop(),
    "POP_MARK": lambda i, _: i.pop_to_mark().clear(),
    "DUP": lambda i, _: i.stack.append(i.stack[-1]),
    "PUT": _memoize,
    "BINPUT": _memoize,
    "LONG_BINPUT": _memoize,
    "MEMOIZE": _memoize,
    "GET": lambda i, key: i.stack.append(i.memo[key]),
    "BINGET": lambda i, key: i.stack.append(i.memo[key]),
    "LONG_BINGET": lambda i, key: i.stack.append(i.memo[key]),
    "TUPLE": lambda i, _: i.stack.append(tuple(i.pop_to_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "LIST": lambda i, _: i.stack.append(i.pop_to_mark()),
    "FROZENSET": lambda i, _: i.stack.append(i.pop_to_mark()),
    "DICT": lambda i, _: i.stack.append(_to_dict(i.pop_to_mark())),
    "APPEND": lambda i, _: i.extend([i.stack.pop()]),
    "APPENDS": lambda i, _: i.extend(i.pop_to_mark()),
    "ADDITEMS": lambda i, _: i.extend(i.pop_to_mark()),
    "SETITEM": lambda i, _: i.set_items([i.stack.pop(-2), i.stack.pop()]),
    "SETITEMS": lambda i, _: i.set_items(i.pop_to_mark()),
    "GLOBAL": _global,
    "STACK_GLOBAL": _global,
    "REDUCE": _reduce,
    "NEWOBJ": lambda i, _: _new_object(i, keywords=False),
    "NEWOBJ_EX": lambda i, _: _new_object(i, keywords=True),
    "OBJ": _obj,
    "INST": _inst,
    "BUILD": lambda i, _: i.set_state(),
    "BINPERSID": lambda i, _: i.stack.append(i.resolve(i.stack.pop())),
}
