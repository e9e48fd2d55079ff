"""Golden values of test_mlp.c, made with PyTorch 1.13.1 on the CPU.

    python3 tests/golden/mlp.py > tests/golden/mlp.h

An MLP 64-128-10 with torch's initial values (seed 1234), synthetic data
(seed 0), ten steps of plain SGD (lr 0.1) on batches of 32 in order: first and
last initial value of each tensor, some of the data, the loss of each step, and
the norm of each gradient in the first.
"""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(1000, 64)
y = torch.randint(0, 10, (1000,))
torch.manual_seed(1234)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_of = nn.CrossEntropyLoss()
sgd = torch.optim.SGD(net.parameters(), lr=0.1)


def row(values):
    return ", ".join(float(v).hex() for v in values)


print("/* Made by tests/golden/mlp.py with PyTorch %s; do not edit. */" % torch.__version__)
print("static const double golden_first[] = { %s };" % row(p.flatten()[0] for p in net.parameters()))
print("static const double golden_last[] = { %s };" % row(p.flatten()[-1] for p in net.parameters()))
print("static const double golden_x[] = { %s };" % row([x[0, 0], x[0, 1], x[31, 63], x[999, 63]]))
print("static const int golden_y[] = { %s };" % ", ".join(str(int(v)) for v in y[:10]))
losses, norms = [], None
for step in range(10):
    i = slice(32 * step, 32 * step + 32)
    sgd.zero_grad()
    loss = loss_of(net(x[i]), y[i])
    loss.backward()
    losses.append(loss.item())
    if step == 0:
        norms = [p.grad.double().norm().item() for p in net.parameters()]
    sgd.step()
print("static const double golden_norm[] = { %s };" % row(norms))
print("static const double golden_loss[] = { %s };" % row(losses))
