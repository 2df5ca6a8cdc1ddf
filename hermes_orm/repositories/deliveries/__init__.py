"""What must reach somebody: results of background delegations, and replies."""
