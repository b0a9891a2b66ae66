"""The assumed numbers of a load that a scenario describes, and which of them decide the answer."""
