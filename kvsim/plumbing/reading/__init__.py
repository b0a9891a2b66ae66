"""Readers of files that other tools wrote, bounded in size, depth and numbers; every fault is one
line.

    files.py       bytes and lines of a file, gzip or plain
    json_text.py   JSON
    csv_rows.py    CSV
    toml_text.py   TOML

Nothing else in kvsim opens files of these formats. So no content can make a reader hang, or raise
anything but InputError.
"""
