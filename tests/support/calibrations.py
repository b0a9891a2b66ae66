"""Made-up calibration files of devices: step times follow a formula."""

from kvsim.step_time.calibrated.file import CalibrationFile, SampleRecord
from kvsim.step_time.calibrated.fit import fit
from kvsim.step_time.calibrated.identity import ModelIdentity
from kvsim.step_time.calibrated.samples import SampleRow, SampleSet


def hinge_file(device: str, model: str, *, base_s: float, token_s: float) -> CalibrationFile:
    """Steps of `base_s` and `token_s` a token, 1 us a context token."""
    rows = tuple(
        SampleRow(
            prefill_tokens=prefill,
            decode_seqs=seqs,
            decode_context_tokens=context * seqs,
            seconds=base_s + token_s * (prefill + seqs) + 1e-6 * context * seqs,
        )
        for prefill in (0, 16, 64, 256)
        for seqs in (0, 1, 4, 16)
        for context in (1, 100, 900)
        if prefill + seqs
    )
    samples = SampleSet("steps.csv", "0" * 64, rows)
    return CalibrationFile.now(
        device=device,
        model=ModelIdentity.named(model),
        samples=SampleRecord.of(samples),
        fit=fit(samples.samples(), forms=["hinge"], resamples=2),
    )
