"""`kvsim validate`: compare the simulator with recordings, papers, real runs and a real cache."""

import typer

from kvsim.commands.example import example
from kvsim.commands.validate.evidence import add_evidence
from kvsim.commands.validate.run import run
from kvsim.commands.validate.runs import runs

app = typer.Typer(
    help="Compare the simulator with recordings, papers and real runs.", no_args_is_help=True
)
app.command("run", epilog=example("kvsim validate run out/observed --step-time kernels"))(run)
app.command("runs", epilog=example("kvsim validate runs collection --out out/runs"))(runs)
add_evidence(app)
