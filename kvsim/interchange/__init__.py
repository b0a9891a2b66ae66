"""Files of other tools, in and out.

sources/         what a server and its clients leave behind, a format a file -> Description
merge.py         descriptions -> one, with what contradicts
becoming/        one description -> a scenario, a stream, an observed run
exports/         a simulated run as other tools record one, a format a file
torch_snapshot/  torch's memory snapshots, read and written
"""
