"""The readers' results as a scenario; and simulated runs in the formats of other tools.

joining.py, merge.py   several descriptions (`kvsim.readers`) -> one, with what contradicts
to_scenario/           one description -> a scenario, a stream, an observed run
exports/               a simulated run as other tools record one, a format a file
torch_snapshot/        torch's memory snapshots, read and written
"""
