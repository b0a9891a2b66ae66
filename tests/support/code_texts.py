"""Texts of the code that readers meet: docstrings, messages of errors and names of tests.

They are found in the syntax tree; no module is imported.
"""

import ast
import re
from collections.abc import Iterator

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
# A drawing, table or formula: every line is indented, or columns are aligned by spaces.
_DRAWN = re.compile(r"\A(?: {4}.*(?:\n|\Z))+\Z|\S {2,}\S")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and text of each docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a docstring without drawings; code counts as one word."""
    for paragraph in text.split("\n\n"):
        if not _DRAWN.search(paragraph):
            yield _CODE.sub("CODE", " ".join(paragraph.split()))


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and text of each string given to an exception; values in it are one word each."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id.endswith(("Error", "Refusal")):
            for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
                text = _text(value)
                if text:
                    yield value.lineno, text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "VALUE" for part in node.values)
    return ""


def names_of_tests(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each test, with spaces for underscores."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.removeprefix("test_").replace("_", " ")
