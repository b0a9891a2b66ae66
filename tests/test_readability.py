"""The check of docstrings, messages and test names finds the faults it is for."""

import ast

import pytest
from support.readability import complaints_of_code, complaints_of_tests

LONG = " ".join(["word"] * 26)
DRAWING = f'def f():\n    """Draw.\n\n    {LONG}   behind\n    """'


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ('"""What a block holds."""', "What begins a docstring"),
        (f'"""{LONG}."""', "26 words"),
        ('class A:\n    """A tier behind the device."""', "behind"),
        ('raise InputError(f"{name} is turned away")', "turned away"),
        ('raise InputError("bad", remedy="see the pool whose blocks are free")', "whose"),
        ('def f():\n    """Return it.\n\n    behind: a parameter\'s name.\n    """', None),
        ('"""CODE stands for `a name whose words do not count`."""', None),
        (DRAWING, None),
    ],
)
def test_check_finds_faults_of_docstrings_and_messages(code: str, complaint: str | None) -> None:
    found = [text for _, text in complaints_of_code(ast.parse(code))]
    assert len(found) == (complaint is not None)
    assert complaint is None or complaint in found[0]


def test_check_finds_private_words_in_names_of_tests() -> None:
    code = "def test_who_is_passed_over_waits(): ...\ndef test_skipped_request_waits(): ..."
    assert [line for line, _ in complaints_of_tests(ast.parse(code))] == [1, 1]
