"""Make a scenario from what readers found, and export simulated runs in other tools' formats.

joining.py, merge.py   merge several descriptions of one server, and list contradictions
to_scenario/           convert one description to a scenario, a request stream, an observed run
exports/               write a simulated run as other tools record one; one file per format
torch_snapshot/        read and write torch's memory snapshots
"""
