"""An engine in real time: the simulator's scheduler decides, the backend computes."""
