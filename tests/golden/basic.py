"""Golden values of test_op_basic.c, made with PyTorch on the CPU.

    python3 tests/golden/basic.py > tests/golden/basic.h

Forward and backward of the basic set of ops (src/tensor/op_mul.c ...), by torch's own functions. The gradient of every
output is drawn, too.
"""
import re

import torch
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(0)


def row(name, values):
    text = ", ".join(re.sub(r"\.?0*p", "p", float(v).hex()) + "f" for v in values.flatten())
    print("static const float %s[] = { %s };" % (name, text))


def case(name, formula, *given):
    """x, and a second and a third input; what is an integer or has no gradient is not one of them."""
    leaves = [v.clone().requires_grad_() for v in given]
    y = formula(*leaves)
    dy = torch.randn(y.shape)
    y.backward(dy)
    for k, v in enumerate(leaves):
        row("%s_x%d" % (name, k), v.detach())
        row("%s_d%d" % (name, k), v.grad)
    row(name + "_y", y.detach())
    row(name + "_dy", dy)


print("/* Made by tests/golden/basic.py with PyTorch %s; do not edit. */" % torch.__version__)
x, z = torch.randn(3, 4, 5) * 2, torch.randn(3, 4, 5)
image, kernel, bias = torch.randn(2, 3, 7, 6), torch.randn(4, 3, 3, 3), torch.randn(4)
case("mul", lambda a, b: a * b, x, z)
case("sub", lambda a, b: a - b, x, z)
case("scale", lambda a: 1.75 * a, x)
case("tanh", torch.tanh, x)
case("sigmoid", torch.sigmoid, x)
case("softmax", lambda a: F.softmax(a, dim=-1), x)
case("matmul", torch.matmul, x, torch.randn(3, 5, 2))
case("sum_all", lambda a: a.sum(), x)
case("sum_1", lambda a: a.sum(dim=1), x)
case("mean_all", lambda a: a.mean(), x)
case("mean_2", lambda a: a.mean(dim=2), x)
case("transpose", lambda a: a.transpose(0, 2), x)
case("slice", lambda a: a[:, 1:3], x)
case("concat", lambda a, b, c: torch.cat((a, b, c), dim=1), x, torch.randn(3, 1, 5), torch.randn(3, 2, 5))
case("conv2d", lambda a, w, b: F.conv2d(a, w, b, stride=1, padding=1), image, kernel, bias)
case("conv2d_far", lambda a, w, b: F.conv2d(a, w, b, stride=2, padding=0), image, kernel, bias)
case("max_pool2d", lambda a: F.max_pool2d(a, 2), image)
case("max_pool2d_close", lambda a: F.max_pool2d(a, 3, stride=2), image)
case("mse_loss", F.mse_loss, x, z)
p, target = torch.rand(3, 4, 5), torch.rand(3, 4, 5)
p[0, 0, 0], p[0, 0, 1] = 0.0, 1.0  # where the logarithms are cut
row("bce_loss_x1", target)
case("bce_loss", lambda a: F.binary_cross_entropy(a, target), p)
