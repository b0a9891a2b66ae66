"""The contiguous allocators against closed forms and cases worked by hand."""

import pytest
from support.buffers import COPY_BYTES_PER_S, MIXED, TOKEN, admit, build, sequence

from kvsim.memory.ledger import Usage
from kvsim.plumbing.errors import InvariantError

# --- max-buffer --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reserve", "declared", "slots"),
    [
        ("model-max", None, 2048),
        ("exact", 500, 133),
        ("pow2", None, 164),
        ("declared-max", 500, 600),
        ("declared-max", None, 2048),
        ("declared-max", 5000, 2048),
    ],
)
def test_max_buffer_reserves_by_its_estimate(reserve, declared, slots):
    allocator = build("max-buffer", 4096, max_model_len=2048, reserve=reserve)
    seq = sequence(100, 33, max_tokens=declared)
    assert admit(allocator, seq)
    assert allocator.granted_tokens(seq) == slots
    final = 100 + 33 - 1
    assert allocator.usage(None, busy=False) == Usage(
        used=100 * TOKEN,
        reserved=(final - 100) * TOKEN,
        overprovisioned=(slots - final) * TOKEN,
        idle=(4096 - slots) * TOKEN,
    )


def test_orca_max_batches_seven_in_the_papers_pool():
    """983 blocks of 16 tokens and buddies of at most 2,048 (Kwon et al. 2023, figure 13: 7.00)."""
    allocator = build("max-buffer", 983 * 16, max_model_len=2048, placement="buddy")
    seqs = [sequence(100, 100, order) for order in range(8)]
    assert [admit(allocator, seq) is not None for seq in seqs] == [True] * 7 + [False]
    usage = allocator.usage(seqs[7], busy=True)
    assert usage.short == 87 * 16 * TOKEN


def test_buddy_rounds_slots_and_recurrent_state_up_to_a_power_of_two():
    """15 slots and a state of 5,000 bytes, more than a token's 4,096, take two blocks of 16."""
    allocator = build("max-buffer", 64, MIXED, reserve="exact", placement="buddy")
    seq = sequence(10, 5)
    assert admit(allocator, seq)
    assert allocator.usage(None, busy=False) == Usage(
        used=10 * TOKEN + 5000,
        reserved=4 * TOKEN,
        overprovisioned=TOKEN,
        rounding=32 * TOKEN - 15 * TOKEN - 5000,
        idle=32 * TOKEN,
    )


def test_free_bytes_are_external_idle_or_short_by_the_need_of_the_queue_head():
    allocator = build("max-buffer", 300, reserve="exact")
    a, b, c = (sequence(50, 50, order) for order in range(3))
    assert all(admit(allocator, seq) for seq in (a, b, c))
    allocator.release(a)
    allocator.release(c)
    free = 200 * TOKEN
    assert allocator.usage(sequence(60, 60), busy=True).external == free  # two holes of 100
    assert allocator.usage(sequence(50, 50), busy=True).idle == free
    assert allocator.usage(sequence(128, 128), busy=True).short == free
    assert allocator.usage(None, busy=True).idle == free


def test_a_max_buffer_does_not_grow():
    allocator = build("max-buffer", 300, reserve="exact")
    seq = sequence(50, 50)
    admit(allocator, seq)
    with pytest.raises(InvariantError, match="needs 101 slots of a buffer of 100"):
        allocator.extend(seq, 101)


# --- doubling ----------------------------------------------------------------------------------


def grow_alone(allocator, seq):
    """Decode `seq` to its end; (successful growths, failed ones, time spent growing)."""
    growths = failures = pending_ps = 0
    assert admit(allocator, seq)
    allocator.join(seq, seq.num_tokens)
    tokens = seq.num_tokens
    while tokens < seq.final_tokens:
        run = allocator.steps_that_fit(seq.final_tokens - tokens)
        if not run:
            assert allocator.must_extend() == [seq]
            growth = allocator.extend(seq, tokens + 1)
            if growth is None:
                return growths, failures + 1, pending_ps
            growths, run = growths + 1, 1
            pending_ps += growth.copy_ps
            growth.end()
        allocator.advance(run)
        tokens += run
    allocator.check()
    return growths, failures, pending_ps


@pytest.mark.parametrize("k", range(1, 7))
def test_k_doublings_need_room_for_the_sum_of_all_buffers(k):
    """c0 * (2**(k + 1) - 1) slots: the c0 * (2**k - 1) freed so far never hold the next buffer."""
    c0 = 4
    need = c0 * (2 ** (k + 1) - 1)
    options = {"initial_tokens": c0, "max_model_len": 4096}
    final = c0 * 2**k
    assert grow_alone(build("doubling", need, **options), sequence(1, final)) == (
        k,
        0,
        _copy(c0, k),
    )
    tight = build("doubling", need - 1, **options)
    assert grow_alone(tight, sequence(1, final))[:2] == (k - 1, 1)
    assert tight.refusal(sequence(1, final).request) is None  # it comes back with the last buffer
    refused = build("doubling", final - 1, **options).refusal(sequence(1, final).request)
    assert (refused.value, refused.limit) == (final, final - 1)


def _copy(c0, k, latency_ps=0):
    """Time of k growths: read and write each full buffer once, rounded up to whole ps."""
    return sum(latency_ps + 2 * c0 * 2**i * TOKEN * 10**12 // COPY_BYTES_PER_S for i in range(k))


def test_doubling_copies_the_bytes_and_time_computed_by_hand():
    allocator = build(
        "doubling", 4000, initial_tokens=16, max_model_len=4096, allocation_latency_us=2.5
    )
    seq = sequence(10, 500)
    growths, _, pending_ps = grow_alone(allocator, seq)
    assert growths == 5  # 16 -> 512
    assert allocator.copied_bytes == (16 + 32 + 64 + 128 + 256) * TOKEN
    assert pending_ps == _copy(16, 5, 2_500_000)


def test_growth_factor_below_the_golden_ratio_reuses_freed_buffers():
    for factor, again in ((1.5, True), (2.0, False)):
        allocator = build("doubling", 10**6, initial_tokens=64, factor=factor, max_model_len=40_000)
        seq = sequence(1, 30_000)
        admit(allocator, seq)
        top = asked = allocator.granted_tokens(seq)
        last = None
        while allocator.granted_tokens(seq) < seq.final_tokens:
            last = allocator.granted_tokens(seq)
            growth = allocator.extend(seq, last + 1)
            assert growth
            address, size = list(allocator.arena.live())[-1]
            top = max(top, (address + size) // TOKEN)
            asked += allocator.granted_tokens(seq)
            growth.end()
        assert (top < asked) == again


def test_old_buffer_stays_allocated_until_the_copy_to_the_new_one_ends():
    allocator = build("doubling", 100, initial_tokens=16)
    seq = sequence(16, 80)
    admit(allocator, seq)
    allocator.join(seq, 16)
    assert allocator.steps_that_fit(50) == 0
    growth = allocator.extend(seq, 17)
    assert growth
    assert allocator.usage(None, busy=True) == Usage(
        used=16 * TOKEN, reserved=16 * TOKEN, transient=16 * TOKEN, idle=52 * TOKEN
    )
    with pytest.raises(InvariantError, match="ended"):
        allocator.extend(seq, 33)
    growth.end()
    assert allocator.usage(None, busy=True).transient == 0
    assert allocator.steps_that_fit(50) == 16
    assert allocator.must_extend() == []


def test_extension_in_place_copies_nothing_if_the_next_region_is_free():
    allocator = build(
        "doubling", 200, initial_tokens=16, extend_in_place=True, allocation_latency_us=3
    )
    a, b = sequence(16, 80), sequence(16, 80, order=1)
    admit(allocator, a)
    growth = allocator.extend(a, 17)
    assert growth
    assert (allocator.copied_bytes, growth.copy_ps) == (0, 3_000_000)
    admit(allocator, b)
    growth = allocator.extend(a, 33)  # now b stands behind it
    assert growth
    assert allocator.copied_bytes == 17 * TOKEN
    growth.end()
    growth = allocator.extend(a, 34)
    assert growth
    assert growth.copy_ps == 0


def test_doubling_buffer_grows_at_most_to_max_model_len():
    allocator = build("doubling", 2000, initial_tokens=60, factor=1.7)
    assert allocator.sizes.capacities == [60, 102, 173, 256]
    assert build("doubling", 2000, initial_tokens=999).sizes.capacities == [256]
    slow = build("doubling", 2000, initial_tokens=2, factor=1.01, max_model_len=5)
    assert slow.sizes.capacities == [2, 3, 4, 5]


def test_decoders_with_full_buffers_must_extend_in_order_of_admission():
    allocator = build("doubling", 3000, initial_tokens=16)
    late, early, half = sequence(16, 80, 2), sequence(14, 80, 1), sequence(8, 80, 3)
    for seq, tokens in ((late, 16), (early, 16), (half, 8)):
        admit(allocator, seq, tokens)
        allocator.join(seq, tokens)
    assert allocator.must_extend() == [early, late] == allocator.must_extend()
    assert allocator.steps_that_fit(9) == 0
    allocator.leave(late)
    assert allocator.must_extend() == [early]
    growth = allocator.extend(early, 17)
    assert growth
    growth.end()
    assert allocator.must_extend() == []
    assert allocator.steps_that_fit(90) == 8


# --- concatenation -----------------------------------------------------------------------------


def test_concatenation_copies_the_cache_and_holds_one_old_layer():
    """Four layers of 1,024 bytes a token; 10 tokens become 11."""
    allocator = build("concatenation", 100, placement="first-fit", allocation_latency_us=1)
    seq = sequence(10, 5)
    admit(allocator, seq)
    assert allocator.usage(None, busy=False) == Usage(used=10 * TOKEN, idle=90 * TOKEN)
    allocator.join(seq, 10)
    assert allocator.steps_that_fit(99) == 0
    assert allocator.must_extend() == [seq]
    growth = allocator.extend(seq, 11)
    assert growth
    layer = TOKEN // 4
    assert allocator.usage(None, busy=False) == Usage(
        used=10 * TOKEN, reserved=TOKEN, transient=10 * layer, idle=89 * TOKEN - 10 * layer
    )
    assert allocator.copied_bytes == 10 * TOKEN
    copying = 2 * 10 * TOKEN * 10**12 // COPY_BYTES_PER_S
    assert growth.copy_ps == 4 * 1_000_000 + copying
    growth.end()
    allocator.advance(1)
    assert allocator.usage(None, busy=False) == Usage(used=11 * TOKEN, idle=89 * TOKEN)


def test_concatenation_copies_the_sum_of_all_lengths():
    """Decoding from p to F slots copies p + (p + 1) + ... + (F - 1) of them."""
    allocator = build("concatenation", 2000, placement="first-fit")
    prompt, output = 20, 60
    growths, failures, _ = grow_alone(allocator, sequence(prompt, output))
    assert (growths, failures) == (output - 1, 0)
    final = prompt + output - 1
    assert allocator.copied_bytes == sum(range(prompt, final)) * TOKEN


def test_failed_concatenation_step_leaves_the_ledger_unchanged():
    """Room for one grown layer but not for the second."""
    allocator = build("concatenation", 53, placement="first-fit")
    seq = sequence(50, 3)
    admit(allocator, seq)
    allocator.join(seq, 50)
    blocker = allocator.arena.allocate(1)
    before = allocator.usage(None, busy=False)
    held = sorted(allocator.arena.live())
    assert not allocator.extend(seq, 51)
    assert allocator.usage(None, busy=False) == before
    assert sum(size for _, size in allocator.arena.live()) == sum(size for _, size in held)
    assert allocator.copied_bytes == 0
    allocator.arena.free(blocker.address)
    allocator.check()
