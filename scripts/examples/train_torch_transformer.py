"""Train a small transformer in PyTorch to predict the next of synthetic tokens.

Under torchrun its ranks train one model together, each on data of its own.
"""

import argparse
import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EXAMPLES = 2048
TOKENS = 1000
LENGTH = 64
WIDTH = 128
HEADS = 4
BLOCKS = 4


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


def synthetic_tokens() -> TensorDataset:
    """Random walks: the next token is one of five, so that there is something to learn."""
    strides = torch.randint(0, 5, (EXAMPLES, LENGTH + 1))
    walks = (torch.randint(0, TOKENS, (EXAMPLES, 1)) + strides.cumsum(1)) % TOKENS
    return TensorDataset(walks[:, :-1], walks[:, 1:])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        block = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, BLOCKS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.following = nn.Linear(WIDTH, TOKENS)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens) + self.places
        hidden = self.blocks(hidden, mask=self.mask, is_causal=True)
        return self.following(self.norm(hidden))


args = parse_args()
rank = int(os.environ.get("RANK", "0"))
torch.manual_seed(args.seed + rank)

loader = DataLoader(
    synthetic_tokens(), args.batch, shuffle=True, drop_last=True, num_workers=args.workers
)
model = Transformer()
if "RANK" in os.environ:
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_function = nn.CrossEntropyLoss()

step = 0
began = time.perf_counter()
with open(args.losses or os.devnull, "w", buffering=1) as losses:
    while step < args.steps:
        for tokens, following in loader:
            if step == args.steps:
                break
            optimizer.zero_grad()
            predicted = model(tokens)
            loss = loss_function(predicted.flatten(0, 1), following.flatten())
            loss.backward()
            optimizer.step()
            print(repr(loss.item()), file=losses)
            if rank == 0 and (step % args.log_every == 0 or step == args.steps - 1):
                seconds = time.perf_counter() - began
                print(f"step {step}  loss {loss.item():.4f}  {seconds:.3f} s", flush=True)
            step += 1
