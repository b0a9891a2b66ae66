"""Calibration: measured steps to a calibration file, compared with steps of a simulated run."""
