"""A small, complete example of distributed training with PyTorch: a linear model on generated data.

Each rank has its own data; DistributedDataParallel averages the gradients, so all ranks keep the same weights.
Prints the loss of each epoch. The exit status is 1 if the loss does not go down, or if the weights differ at the end.
"""

import gc
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    """Train; return the exit status."""
    # conda-python-distributed has set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        # where a rank sees its own GPU only, LOCAL_RANK is not set
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))

    # the same function on all ranks, but different samples
    generator = torch.Generator().manual_seed(1000 + rank)
    inputs = torch.randn(256, 8, generator=generator).to(device)
    targets = (inputs @ torch.arange(8.0, device=device)).unsqueeze(1)

    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for epoch in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}", flush=True)

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everywhere = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, weights)
    equal = all(torch.equal(weights, other) for other in everywhere)
    if rank == 0:
        print(f"ranks: {len(everywhere)}, equal weights: {equal}, loss {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    # no rank may leave while others still communicate; the model holds the process group, so it is deleted first
    dist.barrier()
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()
    return 0 if equal and losses[-1] < losses[0] / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
