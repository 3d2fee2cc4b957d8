"""A table with text, dates and gaps, from end to end."""

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from protopinv import ProtoPINVClassifier, evaluate, load

# A made-up table of journeys; yours may come from pd.read_csv or polars.
random = np.random.default_rng(0)
n = 1_000
journeys = pd.DataFrame(
    {
        "day": pd.Timestamp("2025-01-01") + pd.to_timedelta(random.integers(0, 500, n), "D"),
        "mode": random.choice(["train", "bus", "ferry"], n),
        "kilometres": random.gamma(2.0, 40.0, n),
        "wind": random.gamma(2.0, 3.0, n),
    }
)
delay = journeys["wind"] * (1 + 2 * (journeys["mode"] == "ferry")) + journeys["kilometres"] / 20
late = np.where(delay + random.normal(0, 2, n) > 14, "late", "on time")
journeys.loc[random.random(n) < 0.1, "wind"] = None  # the instrument failed

X_train, X_test, y_train, y_test = train_test_split(journeys, late, random_state=0)
model = ProtoPINVClassifier(effort="quick", random_state=0).fit(X_train, y_train)

print(model.table_)  # what was understood of each column
result = evaluate(model, X_test, y_test)
print(f"accuracy {result.accuracy:.3f}, calibration error {result.calibration_error:.3f}")
for score in result.per_class:
    print(f"{score.label:8} precision {score.precision:.2f}, recall {score.recall:.2f}")

model.save("late.safetensors")
again = load("late.safetensors")
tomorrow = journeys.iloc[[0]].assign(mode="tram", wind=None)  # a value never seen, and a gap
print(again.classes_, again.predict_proba(tomorrow).round(2))

assert result.accuracy > 0.8
assert (again.predict(X_test) == model.predict(X_test)).all()
