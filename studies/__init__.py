"""Measurements of a bank: what each vector is good for, what bits cost, which vectors to choose."""
