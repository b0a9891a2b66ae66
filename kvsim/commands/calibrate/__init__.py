"""`kvsim calibrate`: measure a model on this machine and fit, or fit samples that lie here."""

import typer

from kvsim.commands.calibrate.fit import fit
from kvsim.commands.calibrate.kernels import kernels
from kvsim.commands.calibrate.measure import measure
from kvsim.commands.calibrate.pace import pace

app = typer.Typer(no_args_is_help=True, help="Fit step times to measured steps.")
app.callback(invoke_without_command=True)(measure)
app.command("fit")(fit)
app.command("pace")(pace)
app.command("kernels")(kernels)
