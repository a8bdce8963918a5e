"""Tables as people have them: words, dates, truth values and holes; series with a trend and a season."""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from pathlib import Path


def passengers(path: Path, rows: int = 150) -> None:
    """Write a table with words, dates, truth values and holes, like the list of passengers of the Titanic."""
    draw = random.Random(2)
    lines = ["sex,age,port,member,born,seen,fare,weight,survived"]
    for _ in range(rows):
        sex, age = draw.choice(["male", "female"]), draw.uniform(1, 80)
        holed = f"{age:.1f}" if draw.random() < 0.8 else ""
        port = draw.choice(["Cherbourg", "Queenstown", "Southampton", "NA"])
        born = f"{2012 - int(age)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}" if draw.random() < 0.9 else ""
        seen = f"2012-04-{draw.randint(10, 15)}T{draw.randint(0, 23):02}:{draw.randint(0, 59):02}:{draw.randint(0, 59):02}"
        survived = "yes" if (sex == "female") != (draw.random() < 0.1) else "no"
        more = f"{draw.choice(['true', 'False'])},{born},{seen},{50 + age:.2f},{draw.uniform(40, 90):.1f},{survived}"
        lines.append(f"{sex},{holed},{port},{more}")
    path.write_text("\n".join(lines) + "\n")


def sales(path: Path, rows: int = 200) -> None:
    """Write two series with a trend and a season of 4 quarters, and their dates."""
    lines = ["day,sold,made"]
    for row in range(rows):
        lines.append(f"{date(2020, 1, 1) + timedelta(row)},{1000 + 3 * row + 20 * (row % 4)},{500 + 2 * row + math.sin(row):.4f}")
    path.write_text("\n".join(lines) + "\n")
