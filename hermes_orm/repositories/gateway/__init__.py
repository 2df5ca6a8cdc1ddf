"""Gateway conversations: peers, routes, and what the hosts that serve them keep."""
