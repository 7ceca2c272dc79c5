"""Run a PyTorch script with its model under PyTorch's own memory budget.

    python torch_budget_mode.py BUDGET BACKEND PEAK SCRIPT [ARGUMENTS...]

BUDGET: 0 to 1, of what autograd would keep (torch._functorch.config.activation_memory_budget), or
"eager" for the script as it is. The first module that the script calls is compiled by the backend:
"inductor", or "aot_eager_decomp_partition" where kernels are to be those of eager steps. PEAK: a
file for the bytes that PyTorch's CPU allocator has given out at the most in the sixth step, less
what was there before the fifth; - for none.
"""

import json
import runpy
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

budget, backend, peak, script, *arguments = sys.argv[1:]

if budget != "eager":
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = float(budget)
    call = nn.Module.__call__

    def compiled(self: nn.Module, *args: object, **keywords: object) -> object:
        nn.Module.__call__ = call
        self.compile(backend=backend)
        return self(*args, **keywords)

    nn.Module.__call__ = compiled

profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
steps = 0


def after_a_step(*_: object) -> None:
    global steps
    steps += 1
    if steps == 4:
        profiler.start()
    elif steps == 5:
        with torch.profiler.record_function("the sixth step"):
            pass
    elif steps == 6:
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        (sixth,) = (one["ts"] for one in events if one.get("name") == "the sixth step")
        totals = [
            one["args"]["Total Allocated"]
            for one in events
            if one.get("name") == "[memory]" and one["ts"] >= sixth
        ]
        Path(peak).write_text(str(max(totals)))


if peak != "-":
    register_optimizer_step_post_hook(after_a_step)
sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
