"""Narrow terminal tables: words and numbers are not split, and no character is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from kvsim.report.table_style import empty_table
from kvsim.report.wrapping import by_words, wrapped


@given(st.text(st.sampled_from("ab1.,_/- 宽"), max_size=60), st.integers(8, 30))
@pytest.mark.parametrize("wrap", [wrapped, by_words])
def test_wrapping_loses_nothing_and_keeps_the_width(wrap, text, width):
    lines = wrap(text, width).split("\n")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width for line in lines)


def test_wrapping_breaks_only_words_wider_than_a_line():
    assert by_words("use --kv-cache-dtype fp8", 16) == "use\n--kv-cache-dtype\nfp8"
    assert by_words("Qwen/Qwen2.5-7B-Instruct", 14) == "Qwen/Qwen2.5-\n7B-Instruct"
    assert wrapped("1,234.5 ms", 8) == "1,234.5\nms"


def test_narrow_columns_break_after_separators_alone():
    table = empty_table()
    table.add_column("model", overflow="fold")
    table.add_column("flag", overflow="fold")
    table.add_row("deepseek-ai/DeepSeek-V2-Lite-Chat", "--kv-cache-dtype fp8")
    console = Console(width=34)
    with console.capture() as shown:
        console.print(table)
    parts = {word for line in shown.get().splitlines() for word in line.split()}
    assert {"DeepSeek-", "V2-Lite-"} <= parts or {"DeepSeek-V2-"} <= parts
    assert not {"--kv-cache-dty", "pe"} & parts
