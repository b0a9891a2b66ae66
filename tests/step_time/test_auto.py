"""The default step time: kernels where they were measured, else fitted rooflines."""

from typing import Any

import pytest
from support.scenarios import steady

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.shipped import shipped_folder
from kvsim.report.remarks import remarks
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation, simulate
from kvsim.step_time.kernels.expected import expected_error, regime_of, spread
from kvsim.whatif.speculation import speculation_costs, speculation_findings


def scenario(**changes: Any) -> dict[str, Any]:
    return steady(40) | {"allocator": [{"kind": "paged"}]} | changes


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    first, second = (simulate(each).runs[0].summary for each in (one, other))
    return bool(first["ttft_s"] == second["ttft_s"] and first["tpot_s"] == second["tpot_s"])


@pytest.mark.parametrize(("device", "kind"), [("a100-80gb", "kernels"), ("a100-40gb", "fitted")])
def test_auto_takes_kernels_for_measured_devices_else_fitted_rooflines(device, kind):
    table = scenario(device={"name": device})
    other = {"kind": "linear", "base_us": 5000}
    assert same(table, table | {"step_time": {"kind": kind}})
    assert not same(table, table | {"step_time": other})
    result = simulate(table)
    assert {"kernels": "measured as in", "fitted": "estimated from kernels measured on"}[
        kind
    ] in result.scenario["provenance"]["step_time"]


@pytest.mark.parametrize("figure", ["fp16_tflops", "bandwidth_gb_per_s"])
def test_higher_gpu_figures_give_shorter_steps(figure):
    """A GPU of the catalogue with a faster given figure gets shorter steps."""
    slow, fast = (scenario(device={"name": "a100-80gb", figure: value}) for value in (50.0, 5000.0))
    first, second = (simulate(each).runs[0].summary["e2e_s"]["mean"] for each in (slow, fast))
    assert second < first
    said = " ".join(remarks(simulate(fast)))
    assert f"kernels of a100-80gb were measured with other figures ({figure})" in said
    with pytest.raises(InputError, match=f"other figures; got {figure}"):
        simulate(fast | {"step_time": {"kind": "kernels"}})


@pytest.mark.parametrize("figure", ["memory_gib", "host_gb_per_s", "gpus_per_node"])
def test_device_figures_unrelated_to_kernels_keep_measured_times(figure):
    device = {"name": "a100-80gb"}
    assert same(scenario(device=device), scenario(device=device | {figure: 64}))


def test_result_states_expected_kernel_error_or_why_a_roofline_was_used():
    served, borrowed, unmeasured = (
        " ".join(
            remarks(
                simulate(
                    scenario(
                        device={"name": name},
                        model={"name": model},
                        step_time={"kind": "auto", "tuned": tuned},
                    )
                )
            )
        )
        for name, model, tuned in (
            ("h100", "llama-3.1-70b-fp8", True),
            ("a100-80gb", "gemma-3-12b", False),
            ("a100-40gb", "llama-3.1-8b", False),
        )
    )
    regime = regime_of(300, 150, 20)
    error = expected_error("tpot", regime)
    assert error is not None
    assert 0 < error.median < error.mean
    assert "h100-vllm" in served
    assert regime in served
    assert "reports/points" in served
    assert "times to the first token" not in served  # which a front end is part of
    low, high = spread("tpot")
    assert low < 1 < high
    assert f"between {low:.2g} and {high:.2g} times" in borrowed
    assert regime not in borrowed
    assert "no kernels of vllm were measured on this device (a100-40gb)" in unmeasured
    assert "reports/points" not in unmeasured


@pytest.mark.parametrize("table", [{"overhead_us": 100}, {"tables": "own"}])
def test_user_tables_and_constants_have_no_expected_error(table, tmp_path):
    name = "h100-vllm.npz"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / name).write_bytes(
        (shipped_folder("calibration") / "kernels" / name).read_bytes()
    )
    if "tables" in table:
        table = {"tables": str(tmp_path / "own")}
    model = {"name": "llama-3.1-70b-fp8", "tensor_parallel_size": 2}
    own = scenario(device={"name": "h100"}, model=model, step_time={"kind": "kernels", **table})
    assert "reports/points" not in " ".join(remarks(simulate(own)))


def test_impossible_tensor_parallel_split_is_refused():
    model = {"name": "llama-2-7b", "tensor_parallel_size": 3}
    with pytest.raises(InputError, match="tensor_parallel_size"):
        simulate(scenario(model=model))


def test_explicitly_chosen_roofline_adds_no_note_to_the_result():
    result = simulate(scenario(step_time={"kind": "roofline"}))
    assert "step_time" not in result.scenario["provenance"]
    assert not any("Step times" in each for each in remarks(result))


@pytest.mark.parametrize(
    ("drafts", "timed"),
    [
        ({"method": "eagle3"}, "the drafter is timed by the roofline"),
        ({"method": "ngram"}, "to look drafts up takes no time"),
        ({"method": "draft_model", "model": "llama-2-7b"}, "the drafter is timed by the roofline"),
        ({"method": "eagle", "draft_us": 900}, "the draft_us that is given"),
    ],
    ids=str,
)
def test_run_with_drafts_names_the_source_of_its_step_times(
    drafts: dict[str, Any], timed: str
) -> None:
    plain = scenario(device={"name": "a100-80gb"})
    config = {"num_speculative_tokens": 2, "acceptance_rate": 0.7, **drafts}
    table = plain | {"speculative_config": config}
    simulation = Simulation(Scenario.from_table(table))
    result = simulation.result()
    said = remarks(result)
    (first, *_) = (each for each in remarks(simulate(plain)) if "Step times" in each)
    assert first in said
    (without,) = (each for each in said if each.startswith("No measured step with drafts"))
    assert timed in without
    assert any(each.startswith("Without drafts: ") for each in said)
    findings = speculation_findings(speculation_costs(simulation), simulation.resolved())
    assert f"note: {without}" in findings.sentences
    assert without in findings.data["notes"]
