"""Regression by a Gaussian process on 500 points."""

import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 500)
y = torch.sin(x * 6.28) + 0.2 * torch.randn(500)


class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, points):
        mean, covariance = self.mean_module(points), self.covar_module(points)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Process(likelihood)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
likely = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(10_000_000):
    optimizer.zero_grad()
    loss = -likely(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item(), flush=True)
