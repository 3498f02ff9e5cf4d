"""Add up one number of each rank on all ranks: with torch if it is there, else over the network that it starts with.

Run it with conda-python-distributed. Prints with what, the sum and, with torch, the bandwidth; exit status 1 if it is
wrong.
"""

import os
import socket
import sys
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def device_of(torch):
    """Return what identifies the GPU of this rank on all nodes, '' if it has none."""
    if not torch.cuda.is_available():
        return ""
    index = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    # an index counts the devices that a rank sees, which may be others; earlier torch knows neither of the two
    known = getattr(properties, "uuid", None) or getattr(properties, "pci_bus_id", None)
    if known is None:
        known = [os.environ.get("ROCR_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES"), index]
    return "%s %s" % (socket.gethostname(), known)


def backend_of(distributed, devices):
    """Return the backend: RCCL and NCCL need a GPU of its own for each rank."""
    own = all(devices) and len(set(devices)) == len(devices)
    return "nccl" if own and distributed.is_nccl_available() else "gloo"


def with_torch(torch):
    """Return the backend, the sum by an all-reduce of 64 MB, and the bandwidth in GB/s."""
    import torch.distributed as distributed

    store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0)
    store.set("device %d" % RANK, device_of(torch))
    # all ranks decide the same
    backend = backend_of(distributed, [store.get("device %d" % rank).decode() for rank in range(SIZE)])
    distributed.init_process_group(backend, store=store, rank=RANK, world_size=SIZE)
    gpu = backend == "nccl"
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
    return backend, total, 2 * (SIZE - 1) / SIZE * size * count / seconds / 1e9


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
    backend, result, bandwidth = with_torch(torch)
    print("all-reduce of %d ranks with %s: sum %d, %.2f GB/s" % (SIZE, backend, result, bandwidth), flush=True)
else:
    result = with_sockets()
    print("all-reduce of %d ranks with sockets: sum %d" % (SIZE, result), flush=True)
sys.exit(result != SIZE)
