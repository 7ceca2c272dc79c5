"""Graphs of many sizes: batches of other shapes at each step."""

import torch
from torch.nn.functional import cross_entropy, relu
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

torch.manual_seed(0)
data = FakeDataset(num_graphs=400, avg_num_nodes=60, num_channels=32, num_classes=5)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(32, 64), GCNConv(64, 64)
        self.last = torch.nn.Linear(64, 5)

    def forward(self, batch):
        x = relu(self.first(batch.x, batch.edge_index))
        x = relu(self.second(x, batch.edge_index))
        return self.last(global_mean_pool(x, batch.batch))


model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(1_000_000):
    for batch in DataLoader(data, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = cross_entropy(model(batch), batch.y)
        loss.backward()
        optimizer.step()
    if epoch % 10 == 0:
        print(epoch, loss.item(), flush=True)
