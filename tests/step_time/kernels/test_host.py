"""The host's part of a server that has no constants of its own."""

import pytest

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.step_time.kernels.host import best_entry, host_cost

LABELS = {"engine": "vllm", "kind": "llama", "layers": 32, "method": "", "device": "h100"}
ANY = {"engine": "vllm", "kind": "llama", "sequence_us": 1}
BEFORE = {**ANY, "before": "0.14.0", "sequence_us": 2}
WEIGHTS = {**ANY, "method": "", "sequence_us": 3}
DEVICE = {"engine": "vllm", "device": "h100", "sequence_us": 4}


@pytest.mark.parametrize(
    ("version", "wanted"), [("0.13.0", BEFORE), ("0.14.0", ANY), ("0.33.0", ANY), (None, ANY)]
)
def test_an_entry_before_a_version_is_of_the_older_ones(version, wanted):
    assert best_entry([ANY, BEFORE, DEVICE], LABELS, version) == wanted


@pytest.mark.parametrize("version", ["0.11.0", "0.20.0", None])
def test_an_entry_of_the_same_weights_counts_more_than_one_of_a_version(version):
    assert best_entry([BEFORE, ANY, DEVICE, WEIGHTS], LABELS, version) == WEIGHTS


def test_a_sequence_of_borrowed_constants_takes_less_where_scheduling_is_asynchronous():
    model = named_model("llama-2-7b")
    costs = [
        host_cost("vllm", version, named_device(device), model)
        for device in ("h100", "a100-80gb")
        for version in ("0.11.0", "0.13.0", "0.14.0", None)
    ]
    assert {each.served for each in costs} == {"device"}
    assert costs[:4] == costs[4:]
    assert costs[0] == costs[1]
    assert costs[2] == costs[3]
    assert costs[0].sequence_us > 3 * costs[2].sequence_us > 0
    assert costs[0].layer_us == costs[2].layer_us
