"""A user's program for type checkers: every line marked `# wrong` is one, and no other."""

import torch

import onefold as flow
from onefold import nn
from onefold.nn import functional as F

flow.manual_seed(0)
p = flow.placement("cpu", ranks=[0, 1])
x = flow.randn(4, 6, placement=p, sbp=flow.sbp.split(0), dtype=flow.float32)
w = flow.randn(6, 8, placement=p, sbp=[flow.sbp.broadcast], requires_grad=True)
y = (2 * x @ w + 1).relu().sum(dim=(0, 1), keepdim=True)
y.backward()
z = F.softmax(x, dim=-1).max(1).values[0, :2] / 3
columns = F.unfold(flow.ones(1, 2, 4, 4), 2, padding=1).add_(1, alpha=2).reshape(8, -1)
wide = columns.to(torch.float64, copy=True).view((8, -1))
layer = nn.Linear(3, 4)
there = nn.LSTM(3, 4, device=x.device).to_empty(device=x.device), nn.Linear(3, 4, device=x.device)
total = flow.add(x, x, out=flow.empty_like(x))
top = flow.sort(x, out=(total, flow.empty_like(x, dtype=flow.int64))).values
optimizer = flow.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
v = w.to_global(placement=p, sbp=flow.sbp.broadcast)
print(f"{y.item():.3f}", y.shape, x.size(0), flow.where(x > 0, x, 0.0).tolist(), len(x))
x[0] = 3
x += 1
for row in x:
    row.abs()
a, b = x.chunk(2)
values, indices = x.topk(2)
n: int = x.size(0)
t: flow.Tensor = x.max() + x.mean().exp() - flow.zeros((4, 6)) - flow.zeros_like(x)
s: torch.Size = x.size()

flow.rndn(2)  # wrong
x.foo()  # wrong
x.sum(0).foo()  # wrong
flow.relu(x).foo()  # wrong
F.rellu(x)  # wrong
nn.Linea(2, 3)  # wrong
print(flow.float33)  # wrong
x.sum(dims=1)  # wrong
x.max(keepdims=True)  # wrong
x.to_global(placment=p)  # wrong
flow.zeros(2, plcement=p)  # wrong
flow.zeros_like(x, dtpe=flow.int64)  # wrong
F.cross_entropy(x, x, reduce="mean")  # wrong
nn.Linear(3, 4, biass=True)  # wrong
flow.optim.SGD(layer.parameters(), learning_rate=0.1)  # wrong
flow.placement("cpu")  # wrong
flow.placement(0, [1])  # wrong
flow.matmul(x, "w")  # wrong
flow.cat(x)  # wrong
flow.tensor([1.0], dtype="float32")  # wrong
flow.ones(2, 3, device=["cpu"])  # wrong
nn.Linear("3", 4)  # wrong
x.reshape("2")  # wrong
flow.add(x, x, out="x")  # wrong
x.add(x, out=x)  # wrong
nn.Linear(3, 4, device=["cpu"])  # wrong
x.size("2")  # wrong
_ = x + "1"  # wrong
