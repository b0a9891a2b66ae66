"""The version of kvsim."""

VERSION = "0.2.0"
