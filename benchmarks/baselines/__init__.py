"""Other methods behind the estimators' interface, to compare with."""
