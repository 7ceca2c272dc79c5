"""Predict what was not measured."""
