"""The first room: small tools that know nothing of networks, data or methods, one of each."""
