"""The documented errors against llama-bench equal those of its published table."""

from pathlib import Path

from evidence.llama_bench.errors import grouped, speeds, table

DOCS = Path(__file__).parents[2] / "docs" / "llamacpp.md"


def test_documented_llama_bench_errors_equal_the_table() -> None:
    text = DOCS.read_text()
    for line in table():
        assert line in text


def test_every_llama_bench_row_is_in_a_group() -> None:
    rows = list(speeds())
    assert len(rows) == 294
    assert sum(errors.rows for errors in grouped(rows).values()) == len(rows)


def test_f16_generation_on_consumer_gpus_is_within_15_percent() -> None:
    errors = [
        row.error
        for row in speeds()
        if row.device.startswith(("rtx-3", "rtx-4"))
        and (row.weights, row.test[:2]) == ("F16", "tg")
    ]
    assert len(errors) == 11
    assert max(map(abs, errors)) < 0.15
