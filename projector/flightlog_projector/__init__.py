"""The projector: folds session logs into snapshots and the catalog, in Redis."""
