"""What Redis holds of the logs: snapshots in pieces, the catalog, and how far both reach."""
