"""How sessions follow from each other: chains, roots, orphans."""
