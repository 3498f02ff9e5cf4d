"""Distributed training that saves its state, and continues from there after each interruption.

Saves every 50 steps, and when the job is asked to stop (USR1 some time before the time limit, TERM from the scheduler);
then it exits with 0, and the job is started again or followed by the next one. The exit status is 1 if the loss has not
gone down at the end.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Asked:
    """Whether this rank was asked to stop."""

    NUMBERS = (signal.SIGUSR1, signal.SIGTERM)

    def __init__(self):
        """Install the handlers, which only make a note: the step that is being computed is finished first."""
        self.now = False
        for number in self.NUMBERS:
            signal.signal(number, self.note)

    def note(self, *_):
        """Make a note, and ignore the signals from now on: a late one would end Python while it exits."""
        self.now = True
        for number in self.NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    def anywhere(self, device):
        """Return whether any rank was asked: all have to stop after the same step."""
        asked = torch.tensor([self.now], dtype=torch.int32, device=device)
        dist.all_reduce(asked, dist.ReduceOp.MAX)
        return bool(asked.item())


def save(path, **state):
    """Replace the file at once: a job may end at any time, and an incomplete file would be lost work."""
    new = path.with_suffix(".new")
    torch.save(state, new)
    new.replace(path)


def main():
    """Train; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pause", type=float, default=0, help="seconds to wait in each step, for trials")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    options = parser.parse_args()

    # first, so that no signal is missed
    asked = Asked()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
    )
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step, first = 0, None
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, first = state["step"], state["first"]
    if rank == 0:
        print(f"ranks: {dist.get_world_size()}, starting after step {step}", flush=True)

    loss = None
    stop = False
    while step < options.steps and not stop:
        # the data of a step depends only on its number and the rank, so that nothing is repeated or left out
        generator = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
        inputs = torch.randn(64, 8, generator=generator).to(device)
        targets = (inputs @ torch.arange(8.0, device=device)).unsqueeze(1)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        first = loss.item() if first is None else first
        time.sleep(options.pause)
        stop = asked.anywhere(device)
        if rank == 0 and (stop or step % 50 == 0 or step == options.steps):
            save(
                options.checkpoint,
                model=model.module.state_dict(),
                optimizer=optimizer.state_dict(),
                step=step,
                first=first,
            )
    # no rank may leave before the file is complete
    dist.barrier()
    if rank == 0:
        print(f"stopped after step {step}" if stop else f"finished step {step}", flush=True)
    dist.destroy_process_group()
    return 0 if stop or loss is None or loss.item() < first / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
