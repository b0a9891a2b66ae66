"""Words that were read wrongly once: one name for one class, and no answer from two seeds."""

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.memory.ledger import CLASSES
from kvsim.report.classes import LOOKS
from kvsim.report.words import WASTE_WORDS


@pytest.mark.parametrize("name", WASTE_WORDS)
def test_the_words_for_a_class_have_the_name_of_no_other(name: str) -> None:
    """Once, what was overprovisioned "was reserved for tokens that never came"."""
    others = {other for other in CLASSES if other != name}
    assert not others & set(WASTE_WORDS[name].split())


def test_the_meaning_of_overprovisioned_does_not_call_it_reserved() -> None:
    (meaning,) = (look.meaning for look in LOOKS if look.name == "overprovisioned")
    assert "reserved" not in meaning


@pytest.mark.parametrize("command", ["advise", "doctor"])
def test_two_seeds_are_too_few_to_choose_a_flag_by(command: str) -> None:
    done = CliRunner().invoke(app, [command, "chat", "--repeat", "2"])
    assert done.exit_code == 2
    assert "greater than or equal to 3" in " ".join(done.output.split())
