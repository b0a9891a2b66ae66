import json
import math
import tomllib

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.plumbing.writing import replace_files, write_text
from kvsim.report.numbers import NOTHING
from kvsim.report.parts import part_rows
from kvsim.request import Request
from kvsim.results import store
from kvsim.results.series import SERIES_COLUMNS

FILES = [store.SCENARIO, store.SUMMARY, store.REQUESTS, store.MEMORY, store.REPORT]


def test_stored_result_reads_back_unchanged(tmp_path, odd_result):
    store.write(tmp_path / "out", odd_result, "<html>")
    back = store.read(tmp_path / "out")
    assert back.summary() == odd_result.summary()
    assert back.scenario == odd_result.scenario
    assert [(run.label, run.kind) for run in back.runs] == [
        (run.label, run.kind) for run in odd_result.runs
    ]
    for was, now in zip(odd_result.runs, back.runs, strict=True):
        assert now.summary == was.summary
        pd.testing.assert_frame_equal(now.memory, was.memory)
        # A run without any reason stored none: the column's type is then the reader's choice.
        pd.testing.assert_frame_equal(
            now.requests.astype(object).where(now.requests.notna(), None),
            was.requests.astype(object).where(was.requests.notna(), None),
        )
        for name in ("arrival_ps", "finish_ps", "prompt_tokens"):
            assert now.requests[name].dtype == "int64"


def test_ledger_parts_are_stored_only_for_runs_that_have_them(tmp_path, tables):
    """Paged records the parts of cached memory, radix does not, and max-buffer caches nothing."""
    kinds = [{"kind": "paged", "label": "p"}, {"kind": "radix", "label": "r"}]
    kinds.append({"kind": "max-buffer", "label": "m"})
    requests = [Request(f"r{i}", 0, 100, 60, prompt_runs=((i << 20, 100),)) for i in range(9)]
    result = kvsim.simulate(tables(allocator=kinds, memory={"kv_cache_tokens": 640}), requests)
    store.write(tmp_path, result, None)
    runs = zip(result.runs, store.read(tmp_path).runs, strict=True)
    told = {}
    for was, now in runs:
        pd.testing.assert_frame_equal(now.memory, was.memory)
        told[was.label] = set(now.memory) - set(SERIES_COLUMNS)
    assert told == {"p": {"cached_outputs_bytes"}, "r": set(), "m": set()}
    memory, shares = result.runs[0].memory, result.runs[0].summary["memory"]
    assert (memory.cached_outputs_bytes <= memory.cached_bytes).all()
    assert shares["parts"].keys() == {"cached_prompts", "cached_outputs"}
    texts = {row.look.name: row.texts for row in part_rows([run.summary for run in result.runs])}
    assert [text == NOTHING for text in texts["cached_outputs"]] == [False, True, False]
    assert texts["cached_prompts"][2] == "0 %"

    path = tmp_path / store.MEMORY
    table = pq.read_table(path)
    column = table.column("cached_outputs_bytes").to_pylist()
    column[0] = None
    place = table.column_names.index("cached_outputs_bytes")
    pq.write_table(table.set_column(place, "cached_outputs_bytes", [column]), path)
    with pytest.raises(InputError, match="rows without a value"):
        _ = store.read(tmp_path).runs[0].memory


def test_stored_result_has_five_files_and_a_readable_scenario(tmp_path, result):
    store.write(tmp_path, result, "<html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    assert tomllib.loads((tmp_path / store.SCENARIO).read_text()) == result.scenario
    assert json.loads((tmp_path / store.SUMMARY).read_text()) == result.summary()
    assert (tmp_path / store.REPORT).read_text() == "<html>"


def test_other_files_in_the_folder_are_left_alone(tmp_path, result):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / store.SUMMARY).write_text("an older one")
    store.write(tmp_path, result, "<html>")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert store.read(tmp_path).summary() == result.summary()


def test_failed_write_keeps_the_old_files_only(tmp_path):
    def fail(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    write_text(tmp_path / "a", "old")
    with pytest.raises(InputError, match="No space left on device"):
        replace_files(tmp_path, {"a": lambda path: path.write_text("new"), "b": fail})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_file_where_the_folder_should_be_is_a_one_line_error(tmp_path, result):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot write"):
        store.write(tmp_path / "out", result, "<html>")
    assert (tmp_path / "out").read_text() == "a file"


@pytest.mark.parametrize("name", [store.SUMMARY, store.REQUESTS, store.MEMORY])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_damaged_result_error_names_the_file(tmp_path, result, name, damage):
    store.write(tmp_path, result, "<html>")
    if damage == "missing":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(b"" if damage == "empty" else b"\xff\x00garbage")
    with pytest.raises(InputError, match=name) as error:
        store.read(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [store.REQUESTS, store.MEMORY])
def test_parquet_with_a_wrong_length_is_refused(tmp_path, result, name):
    """The last eight bytes are the footer's length and the magic number."""
    store.write(tmp_path, result, "<html>")
    whole = (tmp_path / name).read_bytes()
    for length in (0, 3, len(whole), 1 << 20, (1 << 31) - 1, (1 << 32) - 1):
        (tmp_path / name).write_bytes(whole[:-8] + length.to_bytes(4, "little") + whole[-4:])
        with pytest.raises(InputError, match=name) as error:
            store.read(tmp_path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("contents", ["[]", "{}", '{"kvsim": "1", "scenario": {}, "runs": [3]}'])
def test_summary_json_of_another_shape_is_refused(tmp_path, contents):
    (tmp_path / store.SUMMARY).write_text(contents)
    with pytest.raises(InputError, match=r"not a summary of kvsim|not a JSON object"):
        store.read(tmp_path)


def test_missing_result_columns_are_named(tmp_path, result):
    store.write(tmp_path, result, "<html>")
    pd.DataFrame({"run": ["paged"], "id": ["r0"]}).to_parquet(tmp_path / store.REQUESTS)
    with pytest.raises(InputError, match=r"columns are missing.*arrival_ps"):
        store.read(tmp_path)


VALUES = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.text(), st.floats(allow_nan=False)
)
TABLES = st.recursive(
    st.dictionaries(st.text(), VALUES | st.lists(VALUES), max_size=4),
    lambda inner: st.dictionaries(
        st.text(), VALUES | inner | st.lists(inner) | st.lists(VALUES | inner), max_size=4
    ),
    max_leaves=12,
)


@given(TABLES)
def test_written_toml_reads_back_unchanged(table):
    assert tomllib.loads(to_toml(table)) == table


def test_toml_writer_writes_plain_tables():
    assert to_toml(
        {"seed": 0, "name": None, "allocator": [{"kind": "paged"}], "m": {"x": 1.5}}
    ) == ('seed = 0\n\n[[allocator]]\nkind = "paged"\n\n[m]\nx = 1.5\n')
    assert tomllib.loads(to_toml({"x": math.inf})) == {"x": math.inf}
    with pytest.raises(TypeError, match="no TOML for object"):
        to_toml({"x": object()})
