"""Golden values of test_attention.c, made with PyTorch 1.13.1 on the CPU, in double.

    python3 tests/golden/attention.py > tests/golden/attention.h

Causal attention of 4 heads of queries that share 2 of keys and values, written
out as matrix products and a softmax, with the rotary positions of Llama before it,
written from their formula. Inputs are sixteenths that a test can make itself.
"""
import math
import torch

B, T, HQ, HKV, D, THETA, FIRST = 2, 5, 4, 2, 8, 100.0, 3


def sixteenths(factor, modulus, *shape):
    n = math.prod(shape)
    values = [(i * factor % modulus - modulus // 2) / 16 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def rope(x):
    inverse_frequency = THETA ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = (FIRST + torch.arange(T, dtype=torch.float64))[:, None] * inverse_frequency
    angle = torch.cat([angle, angle], dim=-1)[:, None, :]
    turned = torch.cat([-x[..., D // 2:], x[..., : D // 2]], dim=-1)
    return x * angle.cos() + turned * angle.sin()


q = sixteenths(37, 41, B, T, HQ, D).requires_grad_()
k = sixteenths(29, 43, B, T, HKV, D).requires_grad_()
v = sixteenths(31, 47, B, T, HKV, D).requires_grad_()
rq, rk = rope(q), rope(k)
qh = rq.transpose(1, 2)
kh = rk.transpose(1, 2).repeat_interleave(HQ // HKV, dim=1)
vh = v.transpose(1, 2).repeat_interleave(HQ // HKV, dim=1)
score = qh @ kh.transpose(-2, -1) / math.sqrt(D)
score = score.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
out = (score.softmax(-1) @ vh).transpose(1, 2)
out.backward(sixteenths(23, 37, B, T, HQ, D))


def array(name, x):
    rows = x.detach().flatten().tolist()
    print("static const double golden_%s[] = {" % name)
    for i in range(0, len(rows), 6):
        print("    " + ", ".join("%.12g" % r for r in rows[i : i + 6]) + ",")
    print("};")


print("/* Made by tests/golden/attention.py with PyTorch %s; do not edit. */" % torch.__version__)
print("enum { GOLDEN_B = %d, GOLDEN_T = %d, GOLDEN_HQ = %d, GOLDEN_HKV = %d, GOLDEN_D = %d };" % (B, T, HQ, HKV, D))
print("enum { GOLDEN_THETA = %d, GOLDEN_FIRST = %d };" % (THETA, FIRST))
for name, x in (("rope_q", rq), ("out", out), ("dq", q.grad), ("dk", k.grad), ("dv", v.grad)):
    array(name, x)
