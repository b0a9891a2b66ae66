"""Parsing of --vary and --zip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.plumbing.errors import InputError
from kvsim.whatif.sweep.axes import parse_axis, parse_zip, points


def values(text: str) -> list[object]:
    return [value for (value,) in parse_axis(text).rows]


def test_axis_values_are_read_as_toml() -> None:
    assert values("a.b=1,2.5,true,fcfs,'x,y',[1, 2]") == [1, 2.5, True, "fcfs", "x,y", [1, 2]]
    assert values("workload.arrivals={kind = 'poisson', rate_per_s = 2}") == [
        {"kind": "poisson", "rate_per_s": 2}
    ]
    assert values("model.hf_config=C:/x.json") == ["C:/x.json"]  # a colon alone is no range


def test_axis_ranges_are_linear_logarithmic_or_integer() -> None:
    assert values("a=1:7:3") == [1, 4, 7]
    assert values("a=1:64:7log") == [1, 2, 4, 8, 16, 32, 64]
    assert values("a=1.0:2.0:3") == [1.0, 1.5, 2.0]
    assert values("a=1:3:9") == [1, 2, 3]


@given(st.floats(1e-3, 1e3), st.floats(1.001, 1e3), st.integers(2, 40), st.booleans())
def test_range_axis_includes_both_ends(low: float, times: float, count: int, log: bool) -> None:
    found = values(f"a={low}:{low * times}:{count}{'log' if log else ''}")
    assert len(found) == count
    assert found[0] == low
    assert found[-1] == low * times
    assert found == sorted(found)  # type: ignore[type-var]


def test_axis_product_varies_the_last_axis_fastest_and_zipped_keys_together() -> None:
    axes = [parse_axis("a=1,2"), parse_zip("b=3,4; c=x,y")]
    assert list(points(axes)) == [
        {"a": 1, "b": 3, "c": "x"},
        {"a": 1, "b": 4, "c": "y"},
        {"a": 2, "b": 3, "c": "x"},
        {"a": 2, "b": 4, "c": "y"},
    ]
    assert list(points([])) == [{}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.b", "not of the form"),
        ("a..b=1", "not of the form"),
        ("a=1,,2", "an empty value"),
        ("a=1,1", "twice"),
        ("a=5:1:3", "first below the last"),
        ("a=1:5:1", "two values or more"),
        ("a=0:5:3log", "above 0"),
        ("seed=1,2", "--repeat"),
    ],
)
def test_invalid_axes_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_axis(text)


@pytest.mark.parametrize("text", ["a=1,2", "a=1,2; b=1"])
def test_invalid_zipped_axes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="as many values"):
        parse_zip(text)


def test_key_varied_by_two_axes_is_refused() -> None:
    with pytest.raises(InputError, match="varied twice"):
        list(points([parse_axis("a=1,2"), parse_zip("a=1,2; b=1,2")]))


def test_integer_range_with_unequal_steps_has_a_note() -> None:
    (note,) = parse_axis("a=1:6:5").notes
    assert (
        note == "a: rounded to whole numbers: 1, 2, 4, 5, 6; write 1.0:6.0:5 for those in between"
    )
    (fewer,) = parse_axis("a=1:3:9").notes
    assert "rounded to whole numbers: 1, 2, 3; write 1.0:3.0:9" in fewer
    for even in ("a=1:8:8", "a=0:10:3", "a=1.0:6.0:5", "a=1:64:7log", "a=1,2,4"):
        assert parse_axis(even).notes == ()
    assert parse_zip("a=1:6:5; b=1:9:5").notes == (note,)
