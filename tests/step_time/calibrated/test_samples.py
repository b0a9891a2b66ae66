"""Reading measured steps: every bad row is one clear line."""

from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.step import Chunk, StepShape
from kvsim.step_time.calibrated.samples import read_samples

HEADER = "kind,prefill_tokens,prefill_prior_tokens,decode_seqs,decode_context_tokens,seconds"


def write(folder: Path, text: str, name: str = "steps.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_samples_csv_with_all_kinds_of_steps_is_read(tmp_path: Path) -> None:
    text = f"{HEADER},decode_context_max,source\n" + (
        "decode,0,0,4,400,0.02,130,log\nprefill,512,64,0,0,0.05,0,log\nmixed,256,0,2,20,0.03,,\n"
    )
    found = read_samples(write(tmp_path, text))
    assert [sample.shape for sample in found.samples()] == [
        StepShape((), 4, 400, 130),
        StepShape((Chunk(512, 64),), 0, 0),
        StepShape((Chunk(256, 0),), 2, 20),
    ]
    assert [sample.seconds for sample in found.samples()] == [0.02, 0.05, 0.03]
    assert len(found.sha256) == 64


def test_json_lines_may_have_several_chunks(tmp_path: Path) -> None:
    row = '{"chunks": [[100, 0], [50, 16]], "decode_seqs": 1, "decode_context_tokens": 9'
    path = write(tmp_path, row + ', "seconds": 0.01, "repeats": 20}\n\n', "steps.jsonl")
    (sample,) = read_samples(path).samples()
    assert sample.shape == StepShape((Chunk(100, 0), Chunk(50, 16)), 1, 9)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("decode,0,0,4,400,0", "steps.csv:2.seconds: too small; got 0"),
        ("decode,0,0,4,400,nan", "steps.csv:2.seconds: not a finite number"),
        ("decode,0,0,4.5,400,1", "steps.csv:2.decode_seqs"),
        ("decode,0,0,-4,400,1", "steps.csv:2.decode_seqs"),
        ("decode,0,0,4,3,1", "decode_context_tokens 3 does not fit decode_seqs 4"),
        ("decode,0,0,0,0,1", "a step without a token"),
        ("prefill,0,0,4,400,1", "kind says 'prefill', the counts say 'decode'"),
        ("decode,0,9,4,400,1", "prefill_prior_tokens without prefill_tokens"),
        ("verify,0,0,4,400,1", "steps.csv:2.kind"),
        ("decode,0,0,4,400", "steps.csv, line 2: the row is cut short; got 5 fields"),
        ("decode,0,0,4,400,1,7", "steps.csv, line 2: the row is too long; got 7 fields"),
    ],
)
def test_invalid_sample_row_is_named(tmp_path: Path, row: str, fault: str) -> None:
    with pytest.raises(InputError) as error:
        read_samples(write(tmp_path, f"{HEADER}\n{row}\n"))
    assert fault in str(error.value)
    assert "\n" not in str(error.value)


def test_invalid_longest_context_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEADER},decode_context_max\ndecode,0,0,4,400,1,99\n")
    with pytest.raises(InputError, match="decode_context_max 99 does not fit 4 contexts"):
        read_samples(path)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("steps.csv", "", "steps.csv: the file is empty"),
        ("steps.csv", f"{HEADER}\n", "no samples"),
        ("steps.csv", f"{HEADER},gpu\n", "unknown column; got 'gpu'; known columns: kind"),
        ("steps.csv", "decode_seqs\n1\n", "steps.csv:2.seconds: required key is missing"),
        ("steps.jsonl", '{"seconds": 1\n', "steps.jsonl:1: not JSON"),
        ("steps.jsonl", "[1]\n", "steps.jsonl:1: not a JSON object"),
        (
            "steps.jsonl",
            '{"seconds": 1, "decode_seqs": 1, "gpu": 1}\n',
            "steps.jsonl:1.gpu: unknown key",
        ),
    ],
)
def test_invalid_samples_file_is_named(tmp_path: Path, name: str, text: str, fault: str) -> None:
    with pytest.raises(InputError) as error:
        read_samples(write(tmp_path, text, name))
    assert fault in str(error.value)


def test_missing_or_binary_samples_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read it: No such file"):
        read_samples(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"kind\xff")
    with pytest.raises(InputError, match="line 1: not UTF-8 text; got byte 0xff"):
        read_samples(tmp_path / "bytes.csv")
