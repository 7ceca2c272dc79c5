"""Scripts one after the other, for which PyTorch is imported once: of each a line of JSON, with the
folder that it runs in and its command. A line tells that it has ended."""

import json
import os
import runpy
import sys

import torch  # noqa: F401

for line in sys.stdin:
    folder, *sys.argv = json.loads(line)
    os.chdir(folder)
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("ended", flush=True)
