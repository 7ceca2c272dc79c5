"""The paper's first model: regression on counters and times at a few sample cases (III-B).

Needs scikit-learn and skops, the extra `regression`.
"""
