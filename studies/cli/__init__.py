"""The commands of the studies: `atlas eval | bench | model | bank sets`."""
