"""Flower's simulation of FedAvg on partitions in an .npz file; its interpreter needs `flwr[simulation]` and torch, not partrain.

    python benchmarks/peers/flower_mlp.py DATA.npz --rounds 30 --clients 10 --rate 0.1 --batch 20 --cores 2

Prints a line of JSON: accuracy on the test items, seconds of the rounds alone and of the whole process, peak memory.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

BEGAN = time.perf_counter()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from flwr.client import ClientApp, NumPyClient  # noqa: E402
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays  # noqa: E402
from flwr.server import ServerApp, ServerAppComponents, ServerConfig  # noqa: E402
from flwr.server.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from torch import nn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("data")
for option, kind in (("rounds", int), ("clients", int), ("rate", float), ("batch", int), ("cores", int)):
    parser.add_argument(f"--{option}", type=kind, required=True)
arguments = parser.parse_args()
PATH = str(Path(arguments.data).resolve())


def network() -> nn.Module:
    """The network of jobs/mnist.toml."""
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def take(net: nn.Module, arrays: list[np.ndarray]) -> None:
    """Set the parameters of a network."""
    with torch.no_grad():
        for parameter, array in zip(net.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(array))


class Client(NumPyClient):  # type: ignore[misc]
    """One client: a pass over its items in batches, by plain SGD."""

    def __init__(self, number: int) -> None:
        data = np.load(PATH, mmap_mode="r")
        items = data["order"][data["ends"][number] - data["sizes"][number] : data["ends"][number]]
        self.inputs = torch.from_numpy(np.load(PATH.replace(".npz", ".inputs.npy"), mmap_mode="r")[np.sort(items)]).float() / 255
        self.labels = torch.from_numpy(data["labels"][np.sort(items)])

    def fit(self, parameters: list[np.ndarray], config: dict[str, object]) -> tuple[list[np.ndarray], int, dict[str, object]]:
        """Train from the server's parameters."""
        net = network()
        take(net, parameters)
        optimizer = torch.optim.SGD(net.parameters(), lr=arguments.rate)
        for batch in torch.randperm(len(self.labels)).split(arguments.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(self.inputs[batch]), self.labels[batch]).backward()
            optimizer.step()
        return [parameter.detach().numpy() for parameter in net.parameters()], len(self.labels), {}


def client(context: object) -> object:
    """Make the client of a node."""
    torch.set_num_threads(1)
    return Client(int(context.node_config["partition-id"])).to_client()  # type: ignore[attr-defined]


moments: list[float] = []
newest: list[np.ndarray] = []


class Timed(FedAvg):  # type: ignore[misc]
    """FedAvg that notes when each round ended."""

    def aggregate_fit(self, server_round: int, results: object, failures: object) -> object:
        """Average, and note the moment."""
        mean = super().aggregate_fit(server_round, results, failures)
        moments.append(time.perf_counter())
        if mean[0] is not None:
            newest[:] = parameters_to_ndarrays(mean[0])
        return mean


def server(context: object) -> object:
    """Make the server."""
    torch.manual_seed(0)
    start = ndarrays_to_parameters([parameter.detach().numpy() for parameter in network().parameters()])
    count = len(np.load(PATH)["sizes"])
    strategy = Timed(
        fraction_fit=arguments.clients / count,
        min_fit_clients=arguments.clients,
        fraction_evaluate=0.0,
        min_available_clients=count,
        initial_parameters=start,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=arguments.rounds + 1))


if __name__ == "__main__":
    data = np.load(PATH)
    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=ClientApp(client_fn=client),
        num_supernodes=len(data["sizes"]),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": arguments.cores, "include_dashboard": False},
        },
    )
    net = network()
    take(net, newest)
    with torch.no_grad():
        answers = net(torch.from_numpy(data["test_inputs"]).float() / 255).argmax(1)
    accuracy = float((answers == torch.from_numpy(data["test_labels"])).float().mean())
    result = {"accuracy": accuracy, "seconds": moments[-1] - moments[0], "whole": time.perf_counter() - BEGAN}
    print(json.dumps(result), flush=True)
