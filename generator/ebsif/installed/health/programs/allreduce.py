"""Add up one number of each rank on all ranks: with torch if it is there, else over the network that it starts with.

Run it with conda-python-distributed. Prints the sum and, with torch, the bandwidth; exit status 1 if it is wrong.
"""
import os
import socket
import sys
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def with_torch(torch):
    """Return the sum by an all-reduce of 64 MB, and the bandwidth in GB/s."""
    import torch.distributed as distributed

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    distributed.init_process_group("nccl" if gpu else "gloo", init_method="env://")
    data = torch.ones(16 * 1024 * 1024 if gpu else 1024, device="cuda" if gpu else "cpu")
    distributed.all_reduce(data)
    total = int(data[0].item())
    start, count = time.time(), 5
    for _ in range(count):
        distributed.all_reduce(data)
    if gpu:
        torch.cuda.synchronize()
    seconds = time.time() - start
    size = data.numel() * data.element_size()
    distributed.destroy_process_group()
    # the usual definition: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    return total, 2 * (SIZE - 1) / SIZE * size * count / seconds / 1e9


def with_sockets():
    """Return the sum, collected by rank 0."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("", address[1]))
            server.listen(SIZE)
            server.settimeout(60)
            others = [server.accept()[0] for _ in range(SIZE - 1)]
            total = 1 + sum(int(one.recv(8)) for one in others)
            for one in others:
                one.sendall(b"%d" % total)
            return total
    end = time.time() + 60
    while True:
        try:
            with socket.create_connection(address, timeout=60) as one:
                one.sendall(b"1")
                return int(one.recv(8))
        except ConnectionRefusedError:
            if time.time() > end:
                raise
            time.sleep(0.1)


try:
    import torch
except ImportError:
    torch = None
if torch and torch.distributed.is_available():
    result, bandwidth = with_torch(torch)
    print("all-reduce of %d ranks: sum %d, %.2f GB/s" % (SIZE, result, bandwidth), flush=True)
else:
    result = with_sockets()
    print("all-reduce of %d ranks: sum %d" % (SIZE, result), flush=True)
sys.exit(result != SIZE)
