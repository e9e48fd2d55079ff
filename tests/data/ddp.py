"""An ordinary PyTorch DDP script: nothing in it knows of Lockstep."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["LOCAL_RANK"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everyone = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(everyone, weights)
assert all(torch.equal(w, weights) for w in everyone)
print(f"rank {rank} of {size}: equal weights, {torch.get_num_threads()} threads", flush=True)
dist.destroy_process_group()
