"""The database engine of the settings: see `base`, where Django looks for it."""
