"""The documented errors against llama-bench are those of its published table."""

from pathlib import Path

from evidence.llama_bench.errors import grouped, speeds, table

DOCS = Path(__file__).parents[2] / "docs" / "llamacpp.md"


def test_the_documented_errors_are_those_of_the_table() -> None:
    text = DOCS.read_text()
    for line in table():
        assert line in text


def test_every_row_is_in_a_group() -> None:
    rows = list(speeds())
    assert len(rows) == 294
    assert sum(errors.rows for errors in grouped(rows).values()) == len(rows)


def test_weights_in_16_bits_are_generated_from_at_the_bandwidth_of_a_consumer_card() -> None:
    errors = [
        row.error
        for row in speeds()
        if row.device.startswith(("rtx-3", "rtx-4"))
        and (row.weights, row.test[:2]) == ("F16", "tg")
    ]
    assert len(errors) == 11
    assert max(map(abs, errors)) < 0.15
