"""Proximal policy optimisation with its defaults."""

from stable_baselines3 import PPO

PPO("MlpPolicy", "CartPole-v1", device="cpu", verbose=1).learn(100_000_000)
