"""Readers of LMDB files for training jobs: in batches, by record, and with hints."""
