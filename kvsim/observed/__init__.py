"""Real runs of engines as folders: which files a folder holds, and how the files are written and
read. Nothing here imports torch.
"""
