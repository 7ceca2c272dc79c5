"""A program that first asks PyTorch for N threads: told_threads.py N -m MODULE, or N FILE."""

import runpy
import sys

import torch

torch.set_num_threads(int(sys.argv[1]))
if sys.argv[2] == "-m":
    sys.argv[:] = sys.argv[3:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.argv[:] = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
