"""Enforce: run an unmodified job with a plan, and tell what came of it."""
