"""The series on which the older parallel trainer's LSTM was measured: pieces of a sine, each value predicted from earlier ones."""

import numpy as np


class Sines:
    """`items` series of ten values, series i being sin((i + j) / 6.5 degrees) for j = 0 ... 9: nine to see, the tenth to give."""

    def __init__(self, items: int = 200, held_out: int = 40) -> None:
        step = items / (items + held_out)
        angles = (step * np.arange(items + held_out)[:, None] + np.arange(10)) / 6.5
        values = np.sin(np.deg2rad(angles)).astype(np.float32)
        self.inputs, self.targets = values[:, :9, None], values[:, 9:]
