"""Replay a graph of tasks on resources: one engine, dispatched by a policy."""
