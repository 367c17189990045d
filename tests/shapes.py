"""A checker for jaxtyping's import hook that looks at array shapes and leaves all other types to mypy."""

from __future__ import annotations

import functools
import inspect
import types
import typing

from jaxtyping import AbstractArray


def check_shapes(fn):
    """`fn`, raising a TypeError where an array argument or result has not the shape that its hint says."""
    signature = inspect.signature(fn)

    @functools.cache
    def hints():
        """The hints that are shapes; resolved at the first call, when every name is there."""
        named = {name: _resolved(hint, fn) for name, hint in fn.__annotations__.items()}
        return {name: kinds for name, hint in named.items() if (kinds := _array_kinds(hint))}

    @functools.wraps(fn)
    def checked(*args, **kwargs):
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            _require(name, value, hints().get(name))
        result = fn(*args, **kwargs)
        _require("return", result, hints().get("return"))
        return result

    return checked


def _resolved(hint, fn):
    """The hint itself; None where it names what is imported for mypy alone."""
    try:
        return eval(hint, fn.__globals__) if isinstance(hint, str) else hint
    except NameError:
        return None


def _array_kinds(hint):
    """The members of a hint, if all but None are array types; else nothing, as there is nothing to check."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if union else (hint,)
    arrays = [one for one in members if inspect.isclass(one) and issubclass(one, AbstractArray)]
    rest = [one for one in members if one not in arrays and one is not type(None)]
    return tuple(members) if arrays and not rest else ()


def _require(name, value, kinds):
    if kinds and not any(isinstance(value, kind) for kind in kinds):
        shape = getattr(value, "shape", None)
        raise TypeError(f"'{name}' has shape {tuple(shape) if shape is not None else value!r}, not {kinds}")
