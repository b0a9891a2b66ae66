"""From measured steps to a calibration file, held against steps of a simulated run."""
