"""An op that calls others, which reports whether these can be observed."""

import argparse
import ctypes
import json
from pathlib import Path

import torch
from torch.profiler import profile

parser = argparse.ArgumentParser()
parser.add_argument("found", type=Path, help="pass and observation of each call, by step")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--profiled", type=int, help="the step that the script itself profiles")
options = parser.parse_args()

library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
is_observed = library._ZN2at23isRecordFunctionEnabledEv
is_observed.restype = ctypes.c_bool
calls = []


@torch.library.custom_op("jobs::chain", mutates_args=())
def chain(values: torch.Tensor) -> torch.Tensor:
    within = torch._C._current_graph_task_id() >= 0
    calls.append(("backward" if within else "forward", is_observed()))
    return values.sin().sin().sin().sin()


chain.register_autograd(lambda context, gradient: chain(gradient))
values = torch.nn.Parameter(torch.ones(64))
optimizer = torch.optim.SGD([values], lr=0.01)


def train():
    optimizer.zero_grad()
    chain(values).sum().backward()
    optimizer.step()


found = []
for step in range(options.steps):
    calls.clear()
    if step == options.profiled:
        with profile():
            train()
    else:
        train()
    found.append(dict(calls))
options.found.write_text(json.dumps(found))
