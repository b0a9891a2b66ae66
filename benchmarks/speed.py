"""CPU seconds and peak memory of whole processes: `make bench`.

Each scenario runs as `kvsim run FILE --json` in a process of its own, several times, after one
run that does not count; the least, the middle and the greatest CPU time are printed, since
machines are noisy. A benchmark is never a test.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CASES: dict[str, list[str]] = {
    "10,000 requests, paged": [str(HERE / "sharegpt-10k.toml")],
    "the same, no prefix cache": [
        str(HERE / "sharegpt-10k.toml"),
        "--set",
        "allocator.0.enable_prefix_caching=false",
    ],
    "the same, doubling": [
        str(HERE / "sharegpt-10k.toml"),
        "--set",
        "allocator.0.kind=doubling",
    ],
    "100,000 requests, paged": [
        str(HERE / "sharegpt-10k.toml"),
        "--set",
        "workload.num_requests=100000",
    ],
}


def measure(arguments: list[str]) -> tuple[float, float, int]:
    """CPU seconds (user + system), peak MiB and output tokens of one whole process."""
    command = [sys.executable, "-m", "kvsim.cli", "run", *arguments, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    (run,) = json.loads(answer)["runs"]
    tokens = round(run["output_tokens_per_s"] * run["makespan_s"])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="run cases whose name contains this")
    options = parser.parse_args()
    print(f"{'case':<28}{'CPU s: least':>14}{'middle':>9}{'greatest':>10}{'peak MiB':>10}")
    for name, arguments in CASES.items():
        if options.only not in name:
            continue
        measure(arguments)
        runs = [measure(arguments) for _ in range(options.repeats)]
        seconds = [cpu for cpu, _, _ in runs]
        print(
            f"{name:<28}{min(seconds):>14.2f}{statistics.median(seconds):>9.2f}"
            f"{max(seconds):>10.2f}{max(peak for _, peak, _ in runs):>10.0f}"
        )


if __name__ == "__main__":
    main()
