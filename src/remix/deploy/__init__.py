"""A classifier in use: predict, evaluate, look inside, export, and teach it more classes."""
