"""Readers of files from elsewhere: bounded in size, depth and numbers; every fault is one line.

    files.py       bytes and lines of a file, gzip or plain
    json_text.py   JSON
    csv_rows.py    CSV
    toml_text.py   TOML

Nothing else in kvsim opens a file of these kinds, so nothing a file holds can make a reader hang or
raise anything but InputError.
"""
