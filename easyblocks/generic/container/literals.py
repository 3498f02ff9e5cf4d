##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The values that Python sees in the text of an easyconfig without running it.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import ast
import warnings
from contextlib import suppress
from typing import Any, Dict


def parsed(text: str) -> ast.Module:
    """Return an easyconfig as Python parses it; raise SyntaxError or ValueError if it can't."""
    with warnings.catch_warnings():
        # many easyconfigs have backslashes that Python warns about
        warnings.simplefilter('ignore')
        return ast.parse(text)


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
            values[name] = ast.literal_eval(statement.value)
    return values
