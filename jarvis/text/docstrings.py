"""Docstrings as documentation, with the values of constants filled in."""

import inspect
import string
import sys
from collections.abc import Callable

from jarvis.core.errors import RegistrationError


class _Constants(string.Formatter):
    """Format numbers without trailing zeros, and a ladder as its limits, worst first."""

    def format_field(self, value: object, spec: str) -> str:
        if isinstance(value, tuple):
            return " / ".join(f"{limit:g}" for limit, _ in value if limit)
        return format(value, spec or "g")


def filled_docstring(function: Callable[..., object]) -> str:
    """Return the docstring of a function with its constants filled in.

    ``{MANY_CALLS}`` or ``{impact.TARGET_PCT}`` becomes the value of that name in the function's
    module.

    Raises:
        RegistrationError: The module has no such constant.
    """
    names = {
        "jarvis": sys.modules["jarvis"],
        **getattr(inspect.unwrap(function), "__globals__", {}),
    }
    try:
        return _Constants().vformat(inspect.getdoc(function) or "", (), names)
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise RegistrationError(
            f"The docstring of {function.__name__} names a constant that its module does not have: "
            f"{error}. Use {{NAME}} with a constant of the module."
        ) from error
