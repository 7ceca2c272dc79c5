"""Ops of a profile, to be run by themselves: made up from their keys, at other batch sizes."""
