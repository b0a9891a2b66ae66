"""How far the roofline is from measured kernels: the band that docs/limits.md names."""

from pathlib import Path

import numpy as np

from kvsim.device import named_device
from kvsim.model import ModelOptions
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.calibrated.file import find_calibration
from kvsim.step_time.calibrated.form import CalibratedTime
from kvsim.step_time.options import Hardware

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "limits.md").read_text().split())
STEPS = 3000


def test_roofline_error_band_in_the_docs_equals_the_measured_one() -> None:
    options = ModelOptions(name="llama-3.1-8b")
    model = options.build()
    hardware = Hardware(model, named_device("rtx-4090"), 1, options.layout(model), Path())
    roofline = STEP_TIMES.parse({"kind": "roofline"}, "step_time").build(hardware)
    measured = CalibratedTime(find_calibration("rtx4090-llama-3.1-8b", "step_time.file"))
    random = np.random.default_rng(0)

    def ratio(shape: StepShape) -> float:
        assert not measured.outside_domain(shape)
        return roofline.step_ps(shape) / measured.step_ps(shape)

    seqs = random.integers(1, 257, STEPS)
    contexts = seqs * random.integers(16, 4096, STEPS)
    decode = [
        ratio(StepShape((), int(n), int(context)))
        for n, context in zip(seqs, contexts, strict=True)
    ]
    prompts = random.integers(16, 2049, STEPS)
    prefill = [ratio(StepShape((Chunk(int(n), 0),), 0, 0)) for n in prompts]
    told = [
        f"{low:.2f} to {high:.2f}"
        for low, high in (np.percentile(part, [10, 90]) for part in (decode, prefill))
    ]
    assert f"decode steps are {told[0]} times as long" in PAGE, told
    assert f"prefill steps {told[1]} times" in PAGE, told
