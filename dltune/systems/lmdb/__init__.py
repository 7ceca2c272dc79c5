"""Reading of training data from LMDB files: measured, explained and planned."""
