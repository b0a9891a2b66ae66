"""The support table: features that do not run together."""

import re
from typing import Any

import pytest
from support.limits_page import PAGE, page
from support.scenarios import conversations, run

from kvsim.engine.connectors import TIERS
from kvsim.plumbing.errors import InputError
from kvsim.support.parts import EVERY_PART, ServerParts
from kvsim.support.rows import ROWS
from kvsim.support.table import check

ALONE: frozenset[str] = frozenset()
TIER = ServerParts(tiers=("vllm-offloading",))
HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
OWN = frozenset(("own blocks",))

# One server for each row, in the order of the table.
REFUSED = (
    ServerParts(stages=2, transfers="vllm"),
    ServerParts(stages=2, tiers=("lmcache",), serves=ALONE),
    ServerParts(stages=2, connector=True, serves=ALONE),
    ServerParts(stages=2, hicache=True),
    ServerParts(stages=2, unplanned=True),
    ServerParts(stages=2, semantics="vllm-0.27"),
    ServerParts(stages=2, swaps=True),
    ServerParts(stages=2, whole_form="linear"),
    ServerParts(stages=2, schedules=ALONE),
    TIER._replace(stages=2, stage_bytes=(512, 1024)),
    ServerParts(drafts=True, schedules=ALONE),
    ServerParts(drafts=True, no_slots=True),
    ServerParts(drafts=True, stages=2, ahead=False),
    ServerParts(drafts=True, stages=2, layers=OWN),
    ServerParts(drafts=True, stages=2, one_pass=True, tables=2),
    ServerParts(drafts=True, tiers=("lmcache",), serves=ALONE),
    TIER._replace(drafts=True, one_pass=True),
    ServerParts(drafts=True, unlike=True, semantics="vllm-0.11"),
    ServerParts(drafts=True, one_pass=True, semantics="vllm-0.27"),
    ServerParts(drafts=True, swaps=True),
    ServerParts(drafts=True, looks_up=True, semantics="vllm-0.27"),
    TIER._replace(allocator="radix"),
    TIER._replace(options=(("host_cache_gib", 1.0),)),
    TIER._replace(options=(("prefix_match_unit", 16),), grouped=True),
    TIER._replace(layers=frozenset(("states",)), caches=False),
    TIER._replace(layers=OWN),
    ServerParts(tiers=("lmcache",), serves=ALONE, transfers="vllm"),
    ServerParts(connector=True, schedules=ALONE),
    ServerParts(connector=True, semantics="vllm-0.27"),
    ServerParts(connector=True, swaps=True),
    ServerParts(shared="tier.0.shared", transfers="vllm"),
    ServerParts(shared="tier.0.shared", alone=True),
    ServerParts(shared="tier.0.shared", cells=2),
    ServerParts(transfers="other", schedulers="Orca and Orca"),
    ServerParts(transfers="vllm", export="vllm-serve"),
    ServerParts(transfers="vllm", failure="fleet.failure.0.replica"),
    ServerParts(transfers="vllm", allocator="radix"),
    ServerParts(transfers="sglang"),
    ServerParts(transfers="vllm", layers=OWN),
    ServerParts(transfers="vllm", layers=frozenset(("chunks",))),
    ServerParts(decodes=True, hicache=True, caches=False),
    ServerParts(transfers="sglang", allocator="radix", storage=True),
    ServerParts(hicache=True, sglang=False),
    ServerParts(hicache=True, caches=False),
    ServerParts(allocator="radix", layers=frozenset(("windows", "states"))),
    ServerParts(parted=True, rules="vllm-0.27"),
    ServerParts(full_blocks=(16, 32), rules="vllm-0.27"),
    ServerParts(special="items", connector=True, stages=2),
    ServerParts(special="items", schedules=ALONE),
    ServerParts(context=2, allocator="radix"),
    ServerParts(lockstep=True, stages=2),
    ServerParts(lockstep=True, connector=True, serves=ALONE),
    ServerParts(lockstep=True, no_tiers=True, depth=2),
    ServerParts(lockstep=True, changes=True),
    ServerParts(lockstep=True, transfers="sglang", allocator="radix"),
    ServerParts(cells=2, changes=True),
    ServerParts(cells=2, clients=True),
    ServerParts(cells=2, rounds=True),
)


def test_every_row_of_the_support_table_refuses_some_server_first() -> None:
    """A row after another that refuses the same servers would have no effect."""
    check(ServerParts())
    check(TIER._replace(drafts=True, stages=2))
    first = [next(row for row in ROWS if row.refused(parts)) for parts in REFUSED]
    assert [(row.one, row.other) for row in first] == [(row.one, row.other) for row in ROWS]
    for parts, row in zip(REFUSED, first, strict=True):
        with pytest.raises(InputError, match=re.escape(row.remedy)) as error:
            check(parts)
        assert error.value.where


def test_tiers_list_only_features_of_the_support_table() -> None:
    for kind in TIERS:
        assert TIERS.get(kind).serves <= EVERY_PART, kind


def test_generated_part_of_the_limits_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "make docs"


@pytest.mark.parametrize(
    ("table", "names", "unsaid"),
    [
        (
            {"model": {"name": "llama-3.1-8b", "pipeline_parallel_size": 2}},
            "prefill and decode replicas",
            "connector",
        ),
        (
            {"tier": [HOST, {"kind": "file-system", "shared": True}]},
            "prefill replicas share no tier",
            "fleet",
        ),
    ],
    ids=["stages", "shared"],
)
def test_refusal_of_two_features_names_their_scenario_tables(
    table: dict[str, Any], names: str, unsaid: str
) -> None:
    sides = {side: {"replicas": 1} for side in ("prefill", "decode")}
    made = conversations(12_000) | {"scheduler": "continuous", "disaggregation": sides}
    with pytest.raises(InputError, match=names) as error:
        run(made | table)
    assert unsaid not in str(error.value)
