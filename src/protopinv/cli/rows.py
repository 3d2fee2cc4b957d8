"""A model that exists already, and rows for it: its own columns, whatever else a table holds."""

from typing import TYPE_CHECKING

from protopinv.errors import DataError, ModelFileError, ProtoPINVError

if TYPE_CHECKING:
    from protopinv.data import Dataset
    from protopinv.data.sources import Split
    from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor


def model_at(path: str) -> "ProtoPINVClassifier | ProtoPINVRegressor":
    """The model in a file; a file that the system does not let us look at is the user's to mend."""
    from protopinv.estimators import load

    try:
        return load(path)
    except ProtoPINVError:
        raise
    except OSError as error:
        raise ModelFileError(
            f"A model file must be readable. {path} is not ({error.strerror}). Check the path."
        ) from error


def rows_for(
    estimator: "ProtoPINVClassifier | ProtoPINVRegressor",
    data: str,
    target: str | None = None,
    weight: str | None = None,
    *,
    needs_target: bool = False,
    split: "Split" = "test",
) -> "Dataset":
    """One split of a named set, or the columns of a table that the model was trained on."""
    from protopinv.data import load_data

    names = getattr(estimator, "feature_names_in_", None)
    features = None if names is None else list(names)
    rows = load_data(
        data,
        split=split,
        target=target,
        features=features,
        needs_target=needs_target,
        weight=weight,
    )
    if rows.X.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"Rows must have what the model was trained on: {estimator.n_features_in_} features. "
            f"{rows.name} has {rows.X.shape[1]}. Choose the data that belong to the model."
        )
    return rows
