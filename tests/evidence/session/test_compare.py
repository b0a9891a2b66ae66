from evidence.session.compare import growth, indirection
from kvsim.backend.measure.timing import CpuClock
from kvsim.backend.shape import Shape
from kvsim.backend.transformer.decoder import Decoder

SHAPE = Shape(1, 16, 2, 1, 8, 16, 11)


def test_comparison_times_a_step_on_paged_and_contiguous_kv():
    (row,) = indirection(Decoder(SHAPE), CpuClock(0.01), [(3, 30)], 4)
    assert (row["sequences"], row["context"]) == (3, 30)
    # How long each takes depends on what else the machine does.
    assert row["paged_s"] > 0
    assert row["contiguous_s"] > 0


def test_growing_buffer_copies_the_bytes_of_its_tokens():
    rows = growth(SHAPE, "cpu", CpuClock(0.01), (64, 65536))
    assert [row["bytes"] for row in rows] == [
        tokens * SHAPE.kv_bytes_per_token for tokens in (64, 65536)
    ]
    assert rows[1]["grow_s"] > rows[0]["grow_s"]
