"""Write calibration/kernels/expected.json: errors of judged points by regime.

    python -m evidence.points.expected DIR/points.json

DIR: what `kvsim validate points FILE.csv --half judge --out DIR` wrote.
"""

import json
import sys
from pathlib import Path

from kvsim.step_time.kernels.expected import EXPECTED_FILE


def main(points: Path) -> None:
    """Write the median and mean errors to expected.json."""
    found = json.loads(points.read_text("utf-8"))
    written = json.loads(EXPECTED_FILE.read_text("utf-8"))
    written["source"] = f"{found['file']}, half {found['half']}: {found['all']['ran']} points"
    for latency in ("tpot", "ttft"):
        written[latency] = {
            each["group"]: [round(each[latency][name], 4) for name in ("median_abs", "mean_abs")]
            for each in found["groups"]["regime"]
            if each[latency]
        }
    EXPECTED_FILE.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
