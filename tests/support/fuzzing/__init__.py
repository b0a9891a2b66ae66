"""Damaged files for every reader: mutation.py spoils, targets.py reads, campaign.py goes on."""
