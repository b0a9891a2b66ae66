"""Every decision recorded from the unmodified routers of vLLM, SGLang, Dynamo and llm-d."""

import json
from pathlib import Path

import pytest

from evidence.schedule.engines import parse_case, read_case
from evidence.schedule.routing.draws import plausible
from evidence.schedule.verdict import compare, validate_case
from kvsim.plumbing.errors import InputError

CASES = sorted((Path(__file__).parent / "routing").glob("*.json"))
# Whole fleets: decisions, publications, and every step of every replica.
FLEETS = sorted((Path(__file__).parent / "fleet").glob("*.json"))


@pytest.mark.parametrize("path", [*CASES, *FLEETS], ids=lambda path: path.stem)
def test_router_decisions_equal_the_recording(path: Path) -> None:
    verdict = validate_case(path)
    assert verdict.equal, verdict.text()
    assert verdict.steps >= 6


def test_recorded_routing_cases_cover_every_router_policy() -> None:
    policies = {read_case(path).policy for path in CASES}  # type: ignore[attr-defined]
    assert (len(CASES), len(FLEETS)) == (24, 4)
    assert policies == {
        *("round_robin", "cache_aware", "power_of_two", "dynamo_kv", "llm_d_epp"),
        *("vllm_dp_lb", "vllm_dp_coordinator", "sglang_dp"),
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_changed_router_decision_is_detected(path: Path) -> None:
    """The middle row of a recording is changed to another worker, or to other counts."""
    case = read_case(path)
    recorded = case.expected(path)
    if path.stem.startswith(("G06", "D05")):
        pytest.skip("a recording of draws is compared by its counts")
    changed = json.loads(json.dumps(recorded))
    row = changed[len(changed) // 2]
    if "worker" in row:
        row["worker"] = (row["worker"] + 1) % 3
    else:
        row["counts"][0][0] += 1
    found = compare(path.stem, changed, case.simulated(changed)).first_difference
    assert found is not None
    assert found["step"] == len(changed) // 2


def test_implausible_random_router_decisions_are_detected() -> None:
    path = next(path for path in CASES if path.stem.startswith("G06"))
    case = read_case(path)
    recorded = case.expected(path)
    always_first = [{**row, "worker": 0} for row in recorded]
    assert not compare("G06", always_first, case.simulated(always_first)).equal
    assert plausible([35, 42, 27, 46], [1, 1, 1, 1])
    assert not plausible([100, 0, 25, 25], [1, 1, 1, 1])
    assert not plausible([1, 1], [1, 0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": "fastest"}, "policy.*fastest.*cache_aware"),
        ({"settings": {"cache_treshold": 0.1}}, "cache_treshold.*cache_threshold"),
        ({"events": [{"event": "stored", "of": "r0", "blocks": [0, 1]}]}, "never sees.*stored"),
    ],
)
def test_routing_case_of_an_unknown_router_is_refused_by_name(
    change: dict[str, object], said: str
) -> None:
    table = {"name": "x", "policy": "cache_aware", "settings": {}, "workers": 2, "events": []}
    with pytest.raises(InputError, match=f"(?s){said}"):
        parse_case({**table, **change}, "x.json").simulated([])
