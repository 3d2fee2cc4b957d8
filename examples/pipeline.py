"""Numbers with scikit-learn's own tools: a pipeline, a search, a target on another scale."""

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline

from protopinv import ProtoPINVRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

pipeline = Pipeline(
    [
        ("choose", SelectKBest(f_regression)),
        ("network", ProtoPINVRegressor(effort="quick", max_epochs=30, random_state=0)),
    ]
)
grid = {"choose__k": [4, "all"], "network__ridge": [3.0, 30.0]}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)
print(search.best_params_, f"R2 {search.score(X_test, y_test):.2f}")

# Where errors count in percent rather than in units, train on the logarithm.
relative = TransformedTargetRegressor(
    ProtoPINVRegressor(effort="quick", random_state=0), func=np.log, inverse_func=np.exp
).fit(X_train, y_train)
off = np.abs(relative.predict(X_test) / y_test - 1)
print(f"half of the predictions are within {100 * np.median(off):.0f} %")

assert search.score(X_test, y_test) > 0.25
