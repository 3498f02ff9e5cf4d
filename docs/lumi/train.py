"""Train a small network with PyTorch, on one GPU or on many; without a GPU, on the CPU.

If there are several ranks, the module's python sets RANK, WORLD_SIZE and where they meet. Each rank prints what it has
done. Exit status 1 if the loss has not gone down.
"""

import argparse
import gc
import os
import platform
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 20


def main():
    """Train; return the exit status."""
    options = read_options()
    gpu = torch.cuda.is_available()
    # a single process has no rank, and nobody to meet
    alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("nccl" if gpu else "gloo", **alone)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # LOCAL_RANK counts the GPUs that this rank sees; if it sees only its own, the variable is not set
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)

    samples = read_samples(options.data, rank, ranks) if options.data else make_samples(rank)
    inputs, targets = samples[:, :-1].to(device), samples[:, -1:].to(device)
    model = DistributedDataParallel(torch.nn.Linear(inputs.shape[1], 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    log, close = open_log(options) if rank == 0 else (ignore, ignore)
    losses = []
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
        log("loss", losses[-1], epoch)
    close()

    node = os.environ.get("SLURMD_NODENAME", platform.node())
    # in one piece: ranks share the output
    sys.stdout.write(
        f"rank {rank} of {ranks} on {node}: {len(samples)} samples, loss {losses[0]:.4f} -> {losses[-1]:.4f}\n"
    )
    # nobody leaves while another still talks; the model holds the process group, and goes first
    dist.barrier()
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()
    return 0 if losses[-1] < losses[0] / 2 else 1


def read_options():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="directory with CSV files; by default, samples are made up")
    parser.add_argument("--tensorboard", metavar="DIR", help="log the loss for TensorBoard")
    parser.add_argument("--mlflow", metavar="DIR", help="log the loss for MLflow")
    return parser.parse_args()


def make_samples(rank):
    """Make up samples, others on each rank: eight inputs and the target."""
    generator = torch.Generator().manual_seed(1000 + rank)
    inputs = torch.randn(256, 8, generator=generator)
    return torch.cat([inputs, (inputs @ torch.arange(8.0)).unsqueeze(1)], dim=1)


def read_samples(folder, rank, ranks):
    """Read this rank's share of the files."""
    lines = [line for path in sorted(folder.glob("*.csv"))[rank::ranks] for line in path.read_text().splitlines()]
    return torch.tensor([[float(number) for number in line.split(",")] for line in lines])


def open_log(options):
    """Return a function that logs (name, value, step), and one that closes the log."""
    if options.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(options.tensorboard)
        return writer.add_scalar, writer.close
    if options.mlflow:
        import mlflow

        mlflow.set_tracking_uri(options.mlflow)
        mlflow.start_run(run_name=os.environ.get("SLURM_JOB_ID"))
        return mlflow.log_metric, mlflow.end_run
    return ignore, ignore


def ignore(*_):
    """Log nothing."""


if __name__ == "__main__":
    sys.exit(main())
