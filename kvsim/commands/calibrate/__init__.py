"""`kvsim calibrate`: measure a model on this machine and fit step times, or fit given samples."""

import typer

from kvsim.commands.calibrate.fit import fit
from kvsim.commands.calibrate.kernels import kernels
from kvsim.commands.calibrate.measure import measure
from kvsim.commands.calibrate.pace import pace
from kvsim.commands.calibrate.tier import tier
from kvsim.commands.example import example

app = typer.Typer(no_args_is_help=True, help="Fit step times to measured steps.")
app.callback(invoke_without_command=True)(measure)
for command, line in (
    (fit, "kvsim calibrate fit steps.csv --out mine.json"),
    (pace, "kvsim calibrate pace out/observed --calibration mine.json --out paced.json"),
    (kernels, "kvsim calibrate kernels aisimulate.whl --out tables"),
    (tier, "kvsim calibrate tier --model llama-3.1-8b --device cuda --out tier.toml"),
):
    app.command(command.__name__, epilog=example(line))(command)
