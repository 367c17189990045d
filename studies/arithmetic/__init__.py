"""Task arithmetic on a bank's own data sets: forgetting (`atlas eval negate`), adding (`atlas eval add`)."""
