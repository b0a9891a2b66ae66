"""Step times fitted to measured steps: samples in, a calibration file out.

    samples.py      measured steps, read from CSV or JSON lines
    token_cost.py   what a form of g(T) promises; hinge, staircase and table are the forms
    formula.py      the whole step time: g(T) and the terms of attention
    fit.py          the form and coefficients that predict held-out steps best
    file.py         the calibration file

Where do I add a form of g(T)? One file here, and its line in TOKEN_COSTS.
"""

from kvsim.plumbing.registry import Registry
from kvsim.step_time.calibrated.token_cost import TokenCost

TOKEN_COSTS: Registry[TokenCost] = Registry(
    "token-cost form",
    {
        "hinge": "kvsim.step_time.calibrated.hinge:Hinge",
        "staircase": "kvsim.step_time.calibrated.staircase:Staircase",
        "table": "kvsim.step_time.calibrated.table:BrokenLine",
    },
)
