"""`kvsim doctor` on the command line: answer, files, refusals, and the documented example."""

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


def test_doctor_page_example_equals_the_answer(tmp_path: Path) -> None:
    (scenario,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    (words,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    subject = tmp_path / "subject.toml"
    subject.write_text(scenario)
    answer = json.loads(run(str(subject), "--json", "--jobs", "1"))
    assert answer["words"] == [" ".join(each.split()) for each in words.split("\n\n")]
    assert answer["causes"] == ["too-few-sequences"]


def test_doctor_page_lists_every_cause() -> None:
    assert set(re.findall(r"^\| `([\w-]+)`", PAGE, flags=re.MULTILINE)) == set(CAUSES.own)


def test_doctor_gives_the_same_answer_twice_and_a_page(tmp_path: Path) -> None:
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


def test_doctor_prints_the_answer_on_the_terminal() -> None:
    words = run(str(HEALTHY), *QUICK)
    assert "Healthy: nothing was found that hurts." in words
    assert "time spent waiting for max_num_seqs" in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(HEALTHY), "--allocator", "radix"], r"--allocator.*radix.*labels: paged"),
        ([str(HEALTHY), "--set", "scheduler.max_num_seq=3"], r"max_num_seq.*max_num_seqs"),
        (["no-such-recipe"], r"no such scenario.*recipes"),
        ([str(HEALTHY), "--out", "/dev/null/x"], r"/dev/null"),
    ],
)
def test_bad_input_is_a_one_line_error(arguments: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    assert re.search(said, str(caught.value)), caught.value
    assert "\n" not in str(caught.value)


REFUSING = HERE / "servers" / "too-long-requests.toml"


@pytest.mark.parametrize(("longest", "share"), [(4096, 62), (2048, 100)])
def test_doctor_reports_refused_requests_before_any_load(longest: int, share: int) -> None:
    chosen = ["--set", f"model.max_model_len={longest}", "--repeat", "3", "--jobs", "1", "--json"]
    answer = json.loads(run(str(REFUSING), *chosen))
    assert answer["causes"] == ["too-long-requests"]
    verdict, refused, *_ = answer["words"]
    assert "(too-long-requests). --max-model-len 6144: +" in verdict
    assert refused.startswith(f"{share} % of the requests are refused, the first because its")
    assert answer["signs"]["cured"]["requests"]["rejected"] == 0


def test_doctor_names_no_flag_for_requests_beyond_the_models_positions() -> None:
    model = ["--set", 'model.name="llama-2-7b"', "--set", "memory.kv_cache_tokens=8000"]
    answer = json.loads(run(str(REFUSING), *model, "--repeat", "3", "--jobs", "1", "--json"))
    assert answer["causes"] == []
    assert answer["rest"] == "refused"
    assert answer["words"][0] == "Nothing was found that a flag cures."
    assert any("positions end at 4,096" in each for each in answer["words"])


def test_doctor_prints_no_lora_flags_without_adapters() -> None:
    assert "lora" not in run(str(REFUSING), "--repeat", "3", "--jobs", "1")
