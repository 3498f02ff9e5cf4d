##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The values that Python sees in a text that others wrote, such as an easyconfig, without running it.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import ast
import warnings
from contextlib import suppress
from typing import Any, Dict, Union


def parsed(text: str) -> ast.Module:
    """Return an easyconfig as Python parses it; raise SyntaxError or ValueError if it can't."""
    with warnings.catch_warnings():
        # many easyconfigs have backslashes that Python warns about
        warnings.simplefilter('ignore')
        try:
            return ast.parse(text)
        except (MemoryError, RecursionError):
            raise ValueError("nested too deeply")


def literal(written: Union[str, ast.AST]) -> Any:
    """Return the value of a literal, given as text or as Python has parsed it; raise ValueError if it isn't one."""
    try:
        return ast.literal_eval(written)
    # a list can't be a key of a dictionary
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("not a literal: %s" % error)


def assignments(tree: ast.Module) -> Dict[str, ast.Assign]:
    """Return the statements that set parameters and variables, by name; the last one of each, which counts."""
    return {target.id: statement for statement in tree.body if isinstance(statement, ast.Assign)
            for target in statement.targets if isinstance(target, ast.Name)}


def literals(text: str) -> Dict[str, Any]:
    """Return the values that an easyconfig writes as literals; empty if Python can't parse it."""
    values = {}
    try:
        statements = assignments(parsed(text))
    except (ValueError, SyntaxError):
        return {}
    for name, statement in statements.items():
        # others are computed from these, or constants of EasyBuild
        with suppress(ValueError):
            values[name] = literal(statement.value)
    return values
