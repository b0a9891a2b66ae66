"""Whole processes, measured: CPU seconds, peak memory, and what they say of themselves."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from case import HERE, Case
from instructions import Counter, ProcessError


@dataclass(frozen=True)
class Measured:
    """One process. said: what it printed, if that was JSON."""

    cpu_s: float
    peak_mib: float
    said: dict[str, Any]


def measure(
    command: list[str], folder: Path | None = None, settings: dict[str, str] | None = None
) -> Measured:
    """Run `command` in `folder` and wait for it. settings: environment variables besides ours."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=os.environ | (settings or {}),
        )
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise ProcessError(lines[-1] if lines else f"exit status {process.returncode}")
    try:
        said = json.loads(answer)
    except ValueError:
        said = {}
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said)


class Tree:
    """kvsim in one folder of files: this one, or that of another commit.

    sources: True: its sources are run, also where it is compiled. False: what is compiled is run,
    or nothing. None: whatever is there.
    """

    def __init__(self, name: str, root: Path, *, sources: bool | None = False) -> None:
        self.name, self.root = name, root
        forms = {True: {"KVSIM_COMPILED": "0"}, False: {"KVSIM_COMPILED": "1"}, None: {}}
        self._settings: dict[str, str] = forms[sources]

    def measure(self, case: Case) -> Measured:
        """The whole process, from the interpreter's start to the tables on disk."""
        with tempfile.TemporaryDirectory() as out:
            return measure(self._command(case, out), settings=self._settings)

    def instructions(self, case: Case, counter: Counter) -> int:
        """Instructions of the same process."""
        with tempfile.TemporaryDirectory() as out:
            # One hash seed, or sets of texts are walked in another order each time.
            settings = {**self._settings, "PYTHONHASHSEED": "0"}
            return counter.count(self._command(case, out), settings)

    def _command(self, case: Case, out: str) -> list[str]:
        # The tree's own kvsim, whatever is installed: -P leaves this folder off the path.
        code = f"import sys; sys.path.insert(0, {str(self.root)!r}); import runpy; " + (
            f"runpy.run_path({str(HERE / 'process.py')!r}, run_name='__main__')"
        )
        return [sys.executable, "-P", "-c", code, out, str(case.path), *case.set]


class Beside:
    """A tree that runs a case with the keys it is compared with."""

    def __init__(self, tree: Tree, case: Case) -> None:
        self.name, self._tree = ", ".join(case.beside), tree

    def measure(self, case: Case) -> Measured:
        """The whole process, as of the tree."""
        return self._tree.measure(case.with_keys(case.beside))


class Peer:
    """Another simulator, as a command. Of {trace} it reads the case's requests (Mooncake's form,
    one JSON object a line); {num_gpu_blocks}, {block_size}, {max_num_seqs},
    {max_num_batched_tokens}, {enable_prefix_caching} (0 or 1), {replicas} and {router} are the
    scenario's.
    """

    def __init__(self, name: str, template: str, folder: Path) -> None:
        self.name, self._template, self._folder = name, template, folder

    def measure(self, case: Case) -> Measured:
        """The whole process, with the requests on disk already."""
        from peer_trace import write_trace

        place = self._folder / "".join(c if c.isalnum() else "-" for c in case.name)
        limits = write_trace(case, place.with_suffix(".jsonl"))
        command = self._template.format(trace=place.with_suffix(".jsonl"), **limits)
        return measure(shlex.split(command))
