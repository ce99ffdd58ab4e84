"""How can `crescendo.run` be a package and a function at once?

The public functions `run` and `report` have the names of the packages that carry them out. Importing a package sets the
attribute of its parent, so whichever came last would win. Instead the packages themselves can be called.
"""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

_FUNCTION = "__function__"


class CallablePackage(ModuleType):
    """A package that passes a call on to one of its functions, and imports that when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _function_of(self)(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_function_of(self))


def make_callable(package: str, function: str) -> None:
    """Let a call of the package call a function, given as module:name below the package."""
    module = sys.modules[package]
    setattr(module, _FUNCTION, function)
    module.__class__ = CallablePackage


def _function_of(package: ModuleType) -> Callable[..., Any]:
    module, _, name = getattr(package, _FUNCTION).partition(":")
    function: Callable[..., Any] = getattr(import_module(f"{package.__name__}.{module}"), name)
    return function
