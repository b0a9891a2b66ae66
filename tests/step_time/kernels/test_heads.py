"""Attention times for unmeasured numbers of heads, from the nearest measured ones."""

from itertools import product

import pytest

from kvsim.device import named_device
from kvsim.plumbing.shipped import shipped_folder
from kvsim.step_time.kernels.heads import heads_sheet
from kvsim.step_time.kernels.roofs import RoofTables
from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, KernelTables
from kvsim.step_time.kernels.work import Roofs

ROOFS = Roofs(named_device("h100"), 16)
ALIKE = (2, 3)


def family(*shapes):
    """Each of shapes twice, of batches 1 and 8: batch * heads * (10 + tokens / 100) us."""
    lines = {
        (*shape, batch): KernelLine(
            (1.0, 1000.0), tuple(batch * shape[0] * (10 + x / 100) for x in (0, 1000))
        )
        for shape, batch in product(shapes, (1, 8))
    }
    return KernelFamily(lines)


def sheet(found, heads, kv_heads, window=0):
    return heads_sheet(found, (heads, kv_heads, 128, window), ROOFS.decode, ALIKE)


def test_measured_head_counts_return_their_measurements():
    found = family((8, 8, 128, 0), (16, 16, 128, 0), (32, 32, 128, 0))
    assert sheet(found, 16, 16)[8] == found.lines[16, 16, 128, 0, 8]


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        (((16, 16, 128, 0), (64, 64, 128, 0), (32, 8, 128, 0)), (32, 32)),
        (((16, 8, 128, 0), (64, 8, 128, 0), (31, 31, 128, 0)), (32, 8)),
        (((8, 2, 128, 0), (128, 32, 128, 0), (32, 1, 128, 0)), (32, 8)),
    ],
)
def test_head_counts_interpolate_at_equal_kv_heads_or_equal_group_size(shapes, wanted):
    found = sheet(family(*shapes), *wanted)
    assert list(found) == [1, 8]
    for batch, line in found.items():  # straight in logarithms: 32 is the geometric mean of both
        assert line.x == (1.0, 1000.0)
        assert line.us == pytest.approx([batch * 32 * 10, batch * 32 * 20])


def test_heads_beyond_the_measured_ones_are_scaled_from_the_nearest():
    found = family((8, 8, 128, 0), (16, 16, 128, 0))
    assert sheet(found, 32, 32)[8].us == pytest.approx(
        [2 * us for us in found.lines[16, 16, 128, 0, 8].us]
    )


def test_shape_with_another_window_or_head_dim_is_no_neighbour():
    shapes = ((16, 16, 128, 512), (64, 64, 64, 0), (31, 31, 128, 0))
    near = sheet(family(*shapes), 32, 32)[8].us
    assert near == pytest.approx([us * 32 / 31 for us in (8 * 31 * 10, 8 * 31 * 20)])


def test_interpolated_curve_ends_with_the_shorter_of_two():
    lines = {
        (16, 16, 128, 0, 1): KernelLine((0.0, 500.0, 2000.0), (10.0, 20.0, 50.0)),
        (64, 64, 128, 0, 1): KernelLine((0.0, 1000.0), (40.0, 80.0)),
    }
    (line,) = sheet(KernelFamily(lines), 32, 32).values()
    assert line.x == (0.0, 500.0, 1000.0)


def test_decode_with_more_kv_heads_equals_a_larger_batch_of_fewer():
    found = family((8, 8, 128, 0), (24, 24, 128, 0), (48, 48, 128, 0))
    for batch in (8, 32):
        found.lines[8, 8, 128, 0, batch] = KernelLine((1.0, 500.0), (batch, 3.0 * batch))
    lines = heads_sheet(found, (32, 32, 128, 0), ROOFS.decode, ALIKE, batched=True)
    assert list(lines) == [1, 8]
    assert lines[8] == found.lines[8, 8, 128, 0, 32]
    assert lines[1].x == (1.0, 500.0)  # 4 of 8 heads: 3 of 7 between batches of 1 and 8
    one = found.lines[8, 8, 128, 0, 1]
    assert lines[1].us == pytest.approx(
        [(4 * one.at(x) + 3 * us) / 7 for x, us in ((1.0, 8.0), (500.0, 24.0))]
    )


def test_larger_batch_is_used_only_for_divisible_head_counts():
    found = family((24, 24, 128, 0), (48, 48, 128, 0))
    shape = (32, 32, 128, 0)
    assert heads_sheet(found, shape, ROOFS.decode, ALIKE, batched=True) == sheet(found, 32, 32)


def test_equal_kv_heads_take_precedence_over_a_larger_batch():
    found = family((8, 2, 128, 0), (16, 8, 128, 0), (64, 8, 128, 0))
    shape = (32, 8, 128, 0)
    assert heads_sheet(found, shape, ROOFS.decode, ALIKE, batched=True) == sheet(found, 32, 8)


def test_one_measured_batch_is_scaled_by_the_number_of_heads():
    lines = {(8, 8, 128, 0, 1): KernelLine((1.0,), (10.0,))}
    (line,) = heads_sheet(
        KernelFamily(lines), (32, 32, 128, 0), ROOFS.decode, ALIKE, batched=True
    ).values()
    assert line.us == pytest.approx([40])


def test_larger_batch_predicts_measured_heads_better_than_neighbours():
    """Of every device, attention of 8 and 48 heads with as many KV heads, each left out."""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for path in sorted((shipped_folder("calibration") / "kernels").glob("*.npz")):
        found = KernelTables(path, None).required("decode_attention", ("bfloat16",))
        for heads, batched in product((8, 48), (True, False)):
            shape = (heads, heads, 128, 0)
            rest = {key: line for key, line in found.lines.items() if key[:-1] != shape}
            lines = heads_sheet(KernelFamily(rest), shape, ROOFS.decode, ALIKE, batched)
            for batch, line in lines.items():
                measured = found.lines.get((*shape, batch))
                if measured is not None:
                    errors[batched] += [
                        abs(us / measured.at(x) - 1) for x, us in zip(*line, strict=True)
                    ]
    half = {batched: sorted(found)[len(found) // 2] for batched, found in errors.items()}
    assert min(map(len, errors.values())) > 500
    assert half[True] < 0.03 < half[False]


def test_fitted_rooflines_cover_every_number_of_heads():
    roofs = RoofTables(named_device("h100"), "vllm").required("decode_attention", ("bfloat16",))
    shape = (36, 9, 128, 0)
    assert heads_sheet(roofs, shape, ROOFS.decode, ALIKE) == roofs.sheet(shape, ROOFS.decode, ALIKE)


def test_left_out_head_counts_are_predicted_from_neighbours():
    """Of every device, attention of 32 heads on 8: half of the times within 6 %."""
    errors = []
    for path in sorted((shipped_folder("calibration") / "kernels").glob("*.npz")):
        found = KernelTables(path, None).required("decode_attention", ("bfloat16",))
        shape = (32, 8, 128, 0)
        rest = KernelFamily({key: line for key, line in found.lines.items() if key[:-1] != shape})
        for batch, line in heads_sheet(rest, shape, ROOFS.decode, ALIKE).items():
            measured = found.lines[*shape, batch]
            errors += [abs(us / measured.at(x) - 1) for x, us in zip(*line, strict=True)]
    assert len(errors) > 1000
    assert sorted(errors)[len(errors) // 2] < 0.06
