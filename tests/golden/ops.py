"""Golden values of test_ops_gpt.c, made with PyTorch 1.13.1 on the CPU.

    python3 tests/golden/ops.py > tests/golden/ops.h

Forward and backward of the ops of a transformer on 6 rows of 16 numbers, by
torch's own kernels where it has them; RMSNorm, which 1.13 has not, is written
as in Llama's reference. `dy` is the gradient of every output.
"""
import torch
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
N, C, V = 6, 16, 5
x, up, dy = torch.randn(N, C) * 2, torch.randn(N, C), torch.randn(N, C)
w, b = torch.randn(C), torch.randn(C)
ids = torch.tensor([3, 0, 3, 4, 0, 3])
table = torch.randn(V, C)


def row(name, values):
    print("static const float golden_%s[] = { %s };" % (name, ", ".join(float(v).hex() + "f" for v in values.flatten())))


def case(name, formula, **given):
    leaves = {k: v.clone().requires_grad_() for k, v in given.items()}
    y = formula(**leaves)
    y.backward(dy)
    row(name + "_y", y.detach())
    for k, v in leaves.items():
        row("%s_d%s" % (name, k), v.grad)


print("/* Made by tests/golden/ops.py with PyTorch %s; do not edit. */" % torch.__version__)
print("enum { GOLDEN_N = %d, GOLDEN_C = %d, GOLDEN_V = %d };" % (N, C, V))
for k, v in (("x", x), ("up", up), ("dy", dy), ("w", w), ("b", b), ("table", table)):
    row(k, v)
print("static const int64_t golden_ids[] = { %s };" % ", ".join(str(int(i)) for i in ids))
case("layernorm", lambda x, w, b: F.layer_norm(x, (C,), w, b, 1e-5), x=x, w=w, b=b)
case("rmsnorm", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w, x=x, w=w)
case("gelu", lambda x: F.gelu(x, approximate="tanh"), x=x)
case("silu", lambda x: F.silu(x), x=x)
case("swiglu", lambda x, up: F.silu(x) * up, x=x, up=up)
case("embedding", lambda table: F.embedding(ids, table), table=table)
