"""`kvsim validate`: the simulator against recordings, papers, real runs and a real cache."""

import typer

from kvsim.commands.validate.evidence import add_evidence
from kvsim.commands.validate.logs import logs
from kvsim.commands.validate.points import points
from kvsim.commands.validate.run import run
from kvsim.commands.validate.runs import runs
from kvsim.commands.validate.schedule import schedule

app = typer.Typer(
    help="Compare the simulator with recordings, papers and real runs.", no_args_is_help=True
)
app.command("schedule")(schedule)
add_evidence(app)
app.command("run")(run)
app.command("runs")(runs)
app.command("logs")(logs)
app.command("points")(points)
