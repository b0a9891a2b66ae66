"""`kvsim doctor` as a command: its answer, its files, its refusals; and its page's example."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.whatif.doctor.causes import CAUSES

HERE = Path(__file__).parent
PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
HEALTHY = HERE / "servers" / "healthy-documents.toml"
QUICK = ["--requests", "100", "--repeat", "3", "--jobs", "1"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_example_of_its_page_says_what_it_says(tmp_path: Path) -> None:
    (scenario,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    (words,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    subject = tmp_path / "subject.toml"
    subject.write_text(scenario)
    answer = json.loads(run(str(subject), "--json", "--jobs", "1"))
    assert answer["words"] == [" ".join(each.split()) for each in words.split("\n\n")]
    assert answer["causes"] == ["too-few-sequences"]


def test_its_page_lists_every_cause() -> None:
    assert set(re.findall(r"^\| `([\w-]+)`", PAGE, flags=re.MULTILINE)) == set(CAUSES.own)


def test_the_same_patient_gets_the_same_answer_and_a_page(tmp_path: Path) -> None:
    first = run(str(HEALTHY), *QUICK, "--json")
    again = run(str(HEALTHY), *QUICK, "--json", "--out", str(tmp_path))
    assert first == again
    answer = json.loads(first)
    assert answer["healthy"]
    assert answer["notes"] == ["100 requests were examined, not 300"]
    assert json.loads((tmp_path / "diagnosis.json").read_text()) == answer
    html = (tmp_path / "diagnosis.html").read_text()
    assert "Healthy: nothing was found that hurts." in html
    assert "http://" not in html.split("<script")[0]


def test_the_terminal_says_it_too() -> None:
    words = run(str(HEALTHY), *QUICK)
    assert "Healthy: nothing was found that hurts." in words
    assert "time spent waiting at max_num_seqs" in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(HEALTHY), "--allocator", "radix"], r"--allocator.*radix.*labels: paged"),
        ([str(HEALTHY), "--set", "scheduler.max_num_seq=3"], r"max_num_seq.*max_num_seqs"),
        (["no-such-recipe"], r"no such scenario.*recipes"),
        ([str(HEALTHY), "--out", "/dev/null/x"], r"/dev/null"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    assert re.search(said, str(caught.value)), caught.value
    assert "\n" not in str(caught.value)
